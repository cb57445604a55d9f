// Read arrays with zarrita.js: `node read_with_zarrita.mjs JOBS`, run from a folder with node_modules; JOBS is a JSON list of
// {"store", "path"}. Prints a JSON list of {"shape", "values"} or {"error"}.
import { readFileSync } from "node:fs";
import * as zarr from "zarrita";
import { FileSystemStore } from "@zarrita/storage";

const answers = [];
for (const { store, path } of JSON.parse(readFileSync(process.argv[2]))) {
  try {
    const location = zarr.root(new FileSystemStore(store)).resolve(`/${path}`);
    const { shape, data } = await zarr.get(await zarr.open(location, { kind: "array" }));
    answers.push({ shape, values: Array.from(data, Number) });
  } catch (error) {
    answers.push({ error: String(error) });
  }
}
console.log(JSON.stringify(answers));
