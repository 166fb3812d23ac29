// Builds dist/ from src/: the same bytes on every machine with the versions of package-lock.json.
import * as esbuild from "esbuild";
import { mkdirSync, writeFileSync } from "node:fs";

const out = process.argv[2] ?? "dist";
mkdirSync(out, { recursive: true });
await esbuild.build({
  entryPoints: ["src/main.tsx"], bundle: true, minify: true, format: "esm", target: "es2022", outdir: out, charset: "utf8",
  legalComments: "none", jsx: "automatic", jsxImportSource: "preact",
});
writeFileSync(`${out}/index.html`, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>AgentFly</title>
<link rel="stylesheet" href="main.css">
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript, which comes from the same address.</noscript>
<script type="module" src="main.js"></script>
</body>
</html>
`);
