/* Serves one signature of an exported model the way TensorFlow Serving does: with TensorFlow's C++ loader, without
   Python, and with no custom operation but those of one library.

   Usage: serve_once OP_LIBRARY VERSION_DIR INPUT TRANSLATION SCORE BATCH_SIZE

   INPUT, TRANSLATION and SCORE are the signature's tensors, NAME:INDEX, of a string [batch], a string [batch] and a
   float [batch]. Standard input holds texts, each after its length in bytes (uint32, this machine's byte order).
   Standard output gets, for each, the length of its translation, the translation and the score (float). */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#define MAX_BATCH 4096

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(const TF_Status *status, const char *what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* The tensor that a name like "StatefulPartitionedCall:1" stands for. */
static TF_Output tensor_named(TF_Graph *graph, const char *name) {
  char operation[256];
  const char *colon = strrchr(name, ':');
  if (colon == NULL || (size_t)(colon - name) >= sizeof operation) fail(name, "no name of a tensor");
  memcpy(operation, name, (size_t)(colon - name));
  operation[colon - name] = '\0';
  TF_Output output = {TF_GraphOperationByName(graph, operation), atoi(colon + 1)};
  if (output.oper == NULL) fail(name, "not in the graph");
  return output;
}

/* Reads up to `most` texts into a string tensor; NULL at the end of the input. */
static TF_Tensor *read_batch(int64_t most) {
  static char *texts[MAX_BATCH];
  static uint32_t sizes[MAX_BATCH];
  int64_t count = 0;
  while (count < most && fread(&sizes[count], sizeof sizes[0], 1, stdin) == 1) {
    texts[count] = malloc(sizes[count] + 1u);
    if (texts[count] == NULL || fread(texts[count], 1, sizes[count], stdin) != sizes[count]) fail("input", "cut off");
    count++;
  }
  if (count == 0) return NULL;
  TF_Tensor *tensor = TF_AllocateTensor(TF_STRING, &count, 1, (size_t)count * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; i++) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], texts[i], sizes[i]);
    free(texts[i]);
  }
  return tensor;
}

static void write_batch(const TF_Tensor *translations, const TF_Tensor *scores) {
  const TF_TString *strings = TF_TensorData(translations);
  const float *numbers = TF_TensorData(scores);
  for (int64_t i = 0; i < TF_Dim(translations, 0); i++) {
    uint32_t size = (uint32_t)TF_StringGetSize(&strings[i]);
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(TF_StringGetDataPointer(&strings[i]), 1, size, stdout);
    fwrite(&numbers[i], sizeof numbers[i], 1, stdout);
  }
}

int main(int argc, char **argv) {
  if (argc != 7) fail(argv[0], "OP_LIBRARY[:OP_LIBRARY...] VERSION_DIR INPUT TRANSLATION SCORE BATCH_SIZE");
  int64_t batch_size = atoll(argv[6]);
  if (batch_size < 1 || batch_size > MAX_BATCH) fail(argv[6], "no size of a batch");
  TF_Status *status = TF_NewStatus();
  for (char *library = strtok(argv[1], ":"); library; library = strtok(NULL, ":")) {
    TF_LoadLibrary(library, status);
    check(status, library);
  }

  const char *tags[] = {"serve"};
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Graph *graph = TF_NewGraph();
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, argv[2], tags, 1, graph, NULL, status);
  check(status, argv[2]);

  TF_Output input = tensor_named(graph, argv[3]);
  TF_Output outputs[] = {tensor_named(graph, argv[4]), tensor_named(graph, argv[5])};
  TF_Tensor *texts;
  while ((texts = read_batch(batch_size)) != NULL) {
    TF_Tensor *found[2] = {NULL, NULL};
    TF_SessionRun(session, NULL, &input, &texts, 1, outputs, found, 2, NULL, 0, NULL, status);
    check(status, "run");
    write_batch(found[0], found[1]);
    TF_DeleteTensor(texts);
    TF_DeleteTensor(found[0]);
    TF_DeleteTensor(found[1]);
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
  return 0;
}
