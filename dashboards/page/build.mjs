// One document out of src/: node build.mjs SOURCE_FOLDER WORK_FOLDER. The work folder holds node_modules; it gets
// page.html.gz (everything inside, nothing to fetch) and page.csp, which allows just that script and that style.
import {createHash} from "node:crypto";
import {readFileSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {join, resolve} from "node:path";
import {gzipSync} from "node:zlib";

const BYTES_MAX = 40 << 10;
const [source, work] = process.argv.slice(2).map((each) => resolve(each));
const {build} = createRequire(join(work, "package.json"))("esbuild");

// Indentation in templates would be kept. Of uPlot's ways to draw a curve we use one, and no axis of dates, no legend, no
// bands, no clouds of points (mode 2), no numbers as a country writes them (Intl takes 20 ms to wake): what only they
// need is cut off at its entrance, and the bundler leaves out what nobody reaches.
const UNUSED = /^\s*(\(paths\.(stepped|bars|spline)\b|uPlot\.(join|fmtDate|tzDate|addGap|clipGaps)\b).*$/gm;
const CUT = [[/(function fmtDate\(.*\) \{)/, "$1 return () => '';"],
  [/(function genTimeStuffs\(.*\) \{)/, "$1 return [[], [], () => []];"],
  [/(function (timeAxis(Stamps|Vals?|Splits)|mkDate|timeSeriesVal|asinhAxisSplits|points)\(.*\) \{)/g,
    "$1 return () => [];"],
  [/(const (subs|engNames) = \{)[^]*?\n\};/g, "$1};"], [/(const localTz = ).*/, "$1'';"],
  [/(const numFormatter = ).*/, "$1{format: String};"],
  [/\bmode == 2\b/g, "false"], [/\bmode == 1\b/g, "true"],
  [/(function (initLegendRow|syncLegend|setLegendValues|(set|add|del)Band|(add|del)Series)\(.*\) \{)/g,
    "$1 return [null, null];"]];
const leaner = (text) => CUT.reduce((each, [from, to]) => each.replace(from, to), text.replace(UNUSED, ""));
const lean = {name: "lean", setup(build) {
  build.onLoad({filter: /\.js$/}, ({path}) => {
    const text = readFileSync(path, "utf8");
    return {contents: path.startsWith(source) ? text.replace(/\n\s+/g, "\n") : leaner(text), loader: "js"};
  });
}};

const bundled = await build({
  entryPoints: ["main.js", "early.js"].map((each) => join(source, each)), bundle: true, minify: true, write: false,
  outdir: work, format: "iife", target: "es2022", charset: "utf8", legalComments: "none",
  nodePaths: [join(work, "node_modules")], logLevel: "warning", plugins: [lean],
});
const text = (name) => bundled.outputFiles.find((each) => each.path.endsWith(name)).text.trim();
// What would end the element early.
const code = (name) => text(name).replaceAll("</script", "<\\/script");
const early = code("early.js"), script = code("main.js"), style = text("main.css").replace(/(--[a-z-]+): /g, "$1:");
const hash = (inside) => `'sha256-${createHash("sha256").update(inside).digest("base64")}'`;

const page = readFileSync(join(source, "index.html"), "utf8")
  .replace("EARLY", () => early).replace("STYLE", () => style).replace("SCRIPT", () => script);
const packed = gzipSync(page, {level: 9});
if (packed.length > BYTES_MAX) {
  console.error(`the page has ${packed.length} bytes packed, at most ${BYTES_MAX} are allowed`);
  process.exit(1);
}
console.log(`page.html.gz: ${packed.length} bytes of at most ${BYTES_MAX}`);
writeFileSync(join(work, "page.html.gz"), packed);
writeFileSync(join(work, "page.csp"), [
  "default-src 'none'", `script-src ${hash(early)} ${hash(script)}`, `style-src ${hash(style)}`, "connect-src 'self'",
  "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
].join("; "));
