// The figure of attention that can be pointed at: the pictures of the server's page, of weights that are given.

const part = (id) => document.getElementById(id);
const picture = new AttentionPicture({
  ribbons: part("ribbons"),
  links: part("links"),
  source: part("source-pieces"),
  target: part("target-pieces"),
  map: part("map"),
  reading: part("reading"),
});
const kind = part("attention-kind");
const choice = new AttentionChoice(
  {
    fields: part("attention-choice"),
    kind,
    layer: part("attention-layer"),
    head: part("attention-head"),
    hint: part("attention-kind-hint"),
    keys: part("source-pieces"),
    queries: part("target-pieces"),
  },
  { asked: show, headChosen: show },
);

function show() {
  const { source, target, layers } = WEIGHTS[kind.value];
  const heads = layers[choice.chosen.layer].map((head) => head.map((row) => row.map((percent) => percent / 100)));
  picture.show(choice.picture({ source, target, heads }));
}

choice.offer(Object.fromEntries(Object.entries(WEIGHTS).map(([name, { layers }]) => [name, layers.length])));
kind.remove(0); // the alignment, which only a server tells
choice.describe();
show();
