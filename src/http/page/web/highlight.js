// Code to coloured tokens, by one regular expression for each family of languages: comments, strings,
// numbers, keywords and calls. It tells these apart, not grammars.

const words = (text) => new Set(text.split(" "));

const C_WORDS = "if else for while do switch case default break continue return const static struct enum union void " +
  "int char float double long short unsigned signed bool sizeof typedef extern inline volatile goto true false";

const FAMILIES = {
  c: {
    names: "c h cpp c++ cc hpp java cs csharp c# kotlin kt swift scala dart go golang php js javascript jsx mjs ts typescript tsx rust rs zig",
    pattern: [
      ["comment", String.raw`//[^\n]*|/\*[\s\S]*?(?:\*/|$)`],
      ["string", String.raw`"(?:\\.|[^"\\\n])*"?|` + "`(?:\\\\.|[^`\\\\])*`?" + String.raw`|'(?:\\.[^'\n]*|[^'\\\n])'|'(?=[^'\n]*')(?![a-z_]+[\s,>:)])(?:\\.|[^'\\\n])*'`],
    ],
    keywords: words(`${C_WORDS} class public private protected interface extends implements new this super import package ` +
      "try catch finally throw throws abstract final override virtual namespace using template typename operator delete " +
      "var let function async await yield of in instanceof typeof export from as null undefined NaN get set static " +
      "fn mut pub impl trait mod use crate self Self match loop move ref where dyn unsafe Some None Ok Err type " +
      "func package chan defer select map range go nil fallthrough string error byte rune val fun when object data is " +
      "readonly keyof declare any never unknown number boolean bigint symbol i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 str"),
  },
  python: {
    names: "python py python3 ruby rb r julia jl elixir",
    pattern: [
      ["comment", "#[^\\n]*"],
      ["string", String.raw`[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)`],
    ],
    keywords: words("and as assert async await break class continue def del elif else except finally for from global if import in is " +
      "lambda nonlocal not or pass raise return try while with yield True False None self match case end do then unless until " +
      "module require nil true false function print elsif begin rescue ensure"),
  },
  shell: {
    names: "bash sh shell zsh console fish powershell ps1 dockerfile docker makefile make",
    pattern: [
      ["comment", "(?<=^|\\s)#[^\\n]*"],
      ["string", String.raw`"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?`],
      ["name", String.raw`\$\w+|\$\{[^}\n]*\}`],
    ],
    keywords: words("if then else elif fi for in do done while until case esac function return exit export local read echo cd sudo set " +
      "FROM RUN COPY ADD WORKDIR CMD ENTRYPOINT ENV EXPOSE ARG USER"),
  },
  data: {
    names: "json jsonc json5 yaml yml toml ini conf properties",
    pattern: [
      ["comment", "(?<=^|\\s)(?:#|//)[^\\n]*"],
      ["name", String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)|(?<=^|\n)[ \t-]*[\w.-]+(?=\s*[:=])|(?<=^|\n)\[[^\]\n]*\]`],
      ["string", String.raw`"(?:\\.|[^"\\\n])*"?|'(?:[^'\\\n]|\\.)*'`],
    ],
    keywords: words("true false null yes no on off"),
  },
  sql: {
    names: "sql postgres postgresql mysql sqlite lua haskell hs",
    pattern: [
      ["comment", String.raw`--[^\n]*|/\*[\s\S]*?(?:\*/|$)`],
      ["string", String.raw`'(?:''|[^'])*'?|"[^"\n]*"?`],
    ],
    ignoreCase: true,
    keywords: words("select from where insert into values update set delete create table alter drop index view join left right inner " +
      "outer full on as and or not null is in like between group by order having limit offset union all distinct case when then " +
      "else end primary key foreign references default constraint with returning exists cast count sum avg min max begin commit " +
      "rollback local function return if do while for repeat until nil true false data type instance let module import deriving"),
  },
  markup: {
    names: "html xml svg xhtml vue markdown md",
    pattern: [
      ["comment", String.raw`<!--[\s\S]*?(?:-->|$)`],
      ["keyword", String.raw`</?[A-Za-z][\w:.-]*|/?>`],
      ["name", String.raw`\b[\w:-]+(?==["'])`],
      ["string", String.raw`(?<==)"[^"]*"?|(?<==)'[^']*'?`],
    ],
    keywords: words(""),
  },
  css: {
    names: "css scss less sass",
    pattern: [
      ["comment", String.raw`/\*[\s\S]*?(?:\*/|$)|//[^\n]*`],
      ["string", String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`],
      ["keyword", String.raw`@[\w-]+|!important`],
      ["name", String.raw`--[\w-]+|[\w-]+(?=\s*:)|[.#][A-Za-z][\w-]*`],
    ],
    keywords: words(""),
  },
  diff: {
    names: "diff patch",
    pattern: [
      ["inserted", String.raw`(?<=^|\n)\+[^\n]*`],
      ["deleted", String.raw`(?<=^|\n)-[^\n]*`],
      ["comment", String.raw`(?<=^|\n)@@[^\n]*`],
    ],
    keywords: words(""),
  },
};

const BY_NAME = new Map(Object.values(FAMILIES).flatMap((family) => family.names.split(" ").map((name) => [name, family])));

function patternOf(family) {
  if (family.compiled === undefined) {
    const kinds = [...family.pattern, ["number", String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`], ["word", String.raw`[A-Za-z_]\w*!?`]];
    family.kinds = kinds.map(([kind]) => kind);
    family.compiled = new RegExp(kinds.map(([, source]) => `(${source})`).join("|"), "g");
  }
  return family.compiled;
}

// Pieces of the text with their kind, or null for plain ones; together they are the text.
export function tokenize(text, language) {
  const family = BY_NAME.get(language);
  if (family === undefined) return text === "" ? [] : [[null, text]];
  const tokens = [];
  let at = 0;
  const push = (kind, piece) => {
    if (piece === "") return;
    if (kind === null && tokens.length > 0 && tokens.at(-1)[0] === null) tokens.at(-1)[1] += piece;
    else tokens.push([kind, piece]);
  };
  for (const match of text.matchAll(patternOf(family))) {
    push(null, text.slice(at, match.index));
    at = match.index + match[0].length;
    const kind = family.kinds[match.slice(1).findIndex((group) => group !== undefined)];
    push(kind === "word" ? wordKind(match[0], text[at], family) : kind, match[0]);
  }
  push(null, text.slice(at));
  return tokens;
}

function wordKind(word, next, family) {
  if (family.keywords.has(family.ignoreCase ? word.toLowerCase() : word)) return "keyword";
  if (word.endsWith("!") || next === "(") return "call";
  return /^[A-Z][a-z]\w*$/.test(word) ? "type" : null;
}
