// What to try first: tasks of our own, then the server's example of every constraint type.

const OWN = [
  { name: "Three words: chef, kitchen, dinner", prompt: "Write one sentence.", constraint: { type: "keywords", keywords: ["chef", "kitchen", "dinner"] }, gen_length: 16 },
  { name: "Three words: dog, ball, beach", prompt: "Write one sentence.", constraint: { type: "keywords", keywords: ["dog", "ball", "beach"] }, gen_length: 16 },
  { name: "Four words: girl, horse, field, ride", prompt: "Write one sentence.", constraint: { type: "keywords", keywords: ["girl", "horse", "field", "ride"] }, gen_length: 16 },
  { name: "Five words: band, stage, crowd, song, night", prompt: "Write one sentence.", constraint: { type: "keywords", keywords: ["band", "stage", "crowd", "song", "night"] }, gen_length: 24 },
  { name: "Blanks to fill: a walk with the dog", prompt: "Write one sentence.", constraint: { type: "keywords", keywords: ["dog", "ball", "beach"] }, template: "On Sunday my [blank:3] with a [blank:2-4] on the [blank:2]." },
  { name: "A bright review", prompt: "Write one sentence about a film.", constraint: { type: "sentiment", target: "positive", threshold: 0.5 }, gen_length: 16 },
  { name: "Two demands: words and length", prompt: "", constraint: { type: "all_of", constraints: [{ type: "keywords", keywords: ["snow", "mountain"] }, { type: "word_count", min_words: 6, max_words: 10 }] }, gen_length: 16 },
];

/** [{ group, tasks: [{ name, prompt, constraint, template?, gen_length? }] }] */
export function tasks(types) {
  const examples = types.map((entry) => ({ name: `${entry.type.replaceAll("_", " ")}${entry.family ? ` (${entry.family})` : ""}`, prompt: "", constraint: entry.example }));
  return [{ group: "Tasks", tasks: OWN }, { group: "Every constraint type", tasks: examples }];
}
