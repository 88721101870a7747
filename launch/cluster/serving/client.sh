#!/usr/bin/env bash
# Translates lines of standard input, or its arguments, through the REST interface of TensorFlow Serving or of
# launch.serve. Prints the JSON of the server: {"predictions": [{"translation": ..., "score": ...}]}.
#
#     ./client.sh "A man is walking." "Two dogs play."
#     MODEL=mine SERVER=translate.example:8501 ./client.sh < sentences.txt
#     CA=chain.pem KEY_FILE=key.txt ./client.sh < sentences.txt      # TLS, and a key of --api_key_file
set -euo pipefail
# Treat the text as bytes. The server rejects text that is not UTF-8.
export LC_ALL=C

server="${SERVER:-127.0.0.1:8501}"
model="${MODEL:-translation}"
signature="${SIGNATURE:-serving_default}"
# A request must not contain more sentences than the server's max_batch_size.
batch="${BATCH:-32}"
url="${CA:+https}"
url="${url:-http}://$server/v1/models/$model:predict"

# Makes one JSON string per line, without control characters except the tab.
json_strings() {
  tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' -e 's/.*/"&"/'
}

# Passed in curl's --config, because all users of the machine can read the arguments of a process.
credentials() {
  [[ -z "${KEY_FILE:-}" ]] || head -n 1 "$KEY_FILE" |
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/header = "Authorization: Bearer &"/'
}

translate() {
  local instances
  instances="$(printf '%s\n' "$@" | json_strings | paste -s -d, -)"
  printf '{"signature_name": "%s", "instances": [%s]}' "$signature" "$instances" |
    curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' --data-binary @- \
      ${CA:+--cacert "$CA"} --config <(credentials) "$url"
  echo
}

if (($#)); then
  translate "$@"
  exit
fi
while mapfile -t -n "$batch" lines && ((${#lines[@]})); do
  translate "${lines[@]}"
done
