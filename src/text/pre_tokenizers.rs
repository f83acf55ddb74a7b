//! How byte-level vocabularies cut text into words before merging: the rules behind the names in
//! `tokenizer.ggml.pre` of a GGUF file.
//!
//! The regular expressions are those of the models' own `tokenizer.json`; each cuts what the ones
//! before it left, matches and gaps alike. A name that is not listed is an error, since guessing
//! would change ids silently.

/// The rules that a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PreTokenizer {
    /// Patterns that cut text into words, applied one after the other.
    pub(super) patterns: &'static [&'static str],
    /// How tokens spell bytes.
    pub(super) spelling: Spelling,
    /// Whether a word that is a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether prompts begin with bos where the file doesn't say.
    pub(super) add_bos: bool,
}

/// How tokens spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte as a printable character.
    Characters,
    /// As text, with `▁` for a space, and tokens for single bytes of what has no other.
    Spaces,
    /// As text; white space is left out.
    Words,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
/// Letters of the scripts with case, as DeepSeek LLM lists them.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const LINES: &str = r"[^\n]+|[\n]+";
/// Digits in threes, from the last one on.
const THREES: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
/// Digits in threes, from the last one on, in numbers that stand alone.
const THREES_OF_NUMBERS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";

const fn rules(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { patterns, spelling: Spelling::Characters, ignore_merges: false, add_bos: false }
}

/// Words that are tokens are taken whole.
const fn whole_words(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { ignore_merges: true, ..rules(patterns) }
}

/// Prompts begin with bos.
const fn with_bos(rules: PreTokenizer) -> PreTokenizer {
    PreTokenizer { add_bos: true, ..rules }
}

/// What a row of the table says: names, and the rules that they stand for.
type Row = (&'static [&'static str], PreTokenizer);

const TABLE: &[Row] = &[
    (
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        with_bos(whole_words(&[LLAMA3])),
    ),
    (&["tekken"], with_bos(whole_words(&[TEKKEN]))),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], rules(&[LLAMA3])),
    (&["glm4", "glm5"], whole_words(&[LLAMA3])),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
            "openpangu",
            "f2llmv2",
        ],
        rules(&[QWEN2]),
    ),
    (&["laguna"], rules(&[LINES, QWEN2])),
    (&["qwen35"], rules(&[QWEN35])),
    (&["ufakzeka"], rules(&[UFAKZEKA])),
    (&["minicpm5"], whole_words(&[r"\p{N}{1,3}", MINICPM5])),
    (&["jais-2"], rules(&[JAIS2])),
    (&["gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"], rules(&[GPT4O])),
    (&["granite-embed-multi-97m"], whole_words(&[GPT4O])),
    (&["tiny_aya", "cohere2moe"], rules(&[THREES_OF_NUMBERS, GPT4O])),
    (&["kimi-k2"], rules(&[KIMI])),
    (
        &["youtu"],
        whole_words(&[
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            YOUTU,
        ]),
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "trillion",
            "granite-docling",
            "exaone4",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        rules(&[GPT2]),
    ),
    (
        &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
            "cohere2_moe",
        ],
        rules(&[r"\p{N}", GPT2]),
    ),
    (&["exaone-moe"], rules(&[EXAONE_MOE])),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], rules(&[BAILING])),
    (&["seed-coder"], rules(&[SEED])),
    (
        &["deepseek-llm"],
        rules(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ]),
    ),
    (
        &["deepseek-coder"],
        rules(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"]),
    ),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        rules(&[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3]),
    ),
    (&["spark2_5"], rules(&[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", SPARK, r"\p{N}"])),
    (
        &["afmoe"],
        rules(&[THREES, r"[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+", DEEPSEEK3]),
    ),
    (&["falcon"], rules(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"])),
    (
        &["chameleon"],
        with_bos(rules(&[
            r"<sentinel:[0-9]+>",
            r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ])),
    ),
    (&["superbpe"], rules(&[r"\p{N}+", r"(?=(\d{3})+(?!\d))"])),
    (&["bloom", "poro-chat", "gpt3-finnish"], rules(&[r" ?[^(\s|.,!?…。，、।۔،)]+"])),
    (&["viking"], rules(&[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"])),
    (
        &["gemma4", "granite-embed-multi-311m", "sarvam-moe"],
        PreTokenizer { spelling: Spelling::Spaces, ..rules(&[LINES]) },
    ),
    // The expression is that of the tokenizers library for pre-tokenizers of this name.
    (&["whitespace"], PreTokenizer { spelling: Spelling::Words, ..rules(&[r"\w+|[^\w\s]+"]) }),
    (&["default"], rules(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"])),
];

/// The rules called `name`.
pub(super) fn find(name: &str) -> Option<PreTokenizer> {
    TABLE.iter().find(|(names, _)| names.contains(&name)).map(|(_, rules)| *rules)
}

/// Whether rules have this pattern. None of them cuts text on one side of a line feed by what stands on the
/// other side, but for one letter.
pub(super) fn is_known(pattern: &str) -> bool {
    TABLE.iter().any(|(_, rules)| rules.patterns.contains(&pattern))
}

/// A name for all rules that differ; those that have just these `patterns` come first.
pub(super) fn distinct(patterns: &[String]) -> Vec<&'static str> {
    let mut rows: Vec<&Row> = TABLE.iter().collect();
    rows.sort_by_key(|(_, rules)| rules.patterns != patterns);
    rows.into_iter().filter_map(|(names, _)| names.first().copied()).collect()
}

/// All names of pre-tokenizers, sorted.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _,
        SplitDelimiterBehavior,
    };

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        for pattern in find(name).unwrap().patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap();
            split.pre_tokenize(&mut pieces).unwrap();
        }
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(word, _, _)| word.to_owned()).collect()
    }

    #[test]
    fn numbers_are_cut_as_each_model_cuts_them() {
        let text = "in 12345 I'LL";
        assert_eq!(words("gpt-2", text), ["in", " 12345", " I", "'", "LL"]);
        assert_eq!(words("llama-bpe", text), ["in", " ", "123", "45", " I", "'LL"]);
        assert_eq!(words("qwen2", text), ["in", " ", "1", "2", "3", "4", "5", " I", "'LL"]);
        assert_eq!(words("smollm", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(words("falcon", "a 12345"), ["a", " ", "123", "45"]);
        assert_eq!(words("whitespace", "你好, w_1!?"), ["你好", ",", " ", "w_1", "!?"]);
    }

    #[test]
    fn every_pattern_compiles_and_loses_nothing() {
        let text = "Añ \n12 你好! 1234567 IMGIMGABZ\t'LL x̂  <sentinel:3>…ㄅ가\r\n\n  ";
        for name in names() {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names = names();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }

    #[test]
    fn digits_are_counted_from_the_last_one() {
        for name in ["tiny_aya", "afmoe", "superbpe"] {
            assert_eq!(words(name, "1234567")[..], ["1", "234", "567"], "{name}");
            assert_eq!(words(name, "123456")[..], ["123", "456"], "{name}");
        }
    }

    #[test]
    fn unknown_names_are_not_guessed() {
        assert!(find("qwen99").is_none());
    }

    /// Every pattern, compiled.
    fn all() -> &'static [(&'static str, Split)] {
        static ALL: OnceLock<Vec<(&str, Split)>> = OnceLock::new();
        let split = |pattern: &&'static str| {
            let regex = SplitPattern::Regex((*pattern).to_owned());
            (*pattern, Split::new(regex, SplitDelimiterBehavior::Isolated, false).unwrap())
        };
        ALL.get_or_init(|| TABLE.iter().flat_map(|(_, rules)| rules.patterns).map(split).collect())
    }

    /// Where text is cut, in bytes.
    fn cuts(split: &Split, text: &str) -> Vec<usize> {
        let mut pieces = PreTokenizedString::from(text);
        split.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (begin, _), _)| begin).filter(|begin| *begin > 0).collect()
    }

    proptest! {
        #[test]
        fn no_side_of_a_line_feed_is_cut_by_the_other_one(
            front in "[abA1 .'\n\r\té你가s(<]{0,10}\n",
            behind in "[abAI][abA1 .'\n\r\té你가s\u{301})>]{0,10}",
        ) {
            let at = front.len();
            for (pattern, split) in all() {
                let whole = cuts(split, &format!("{front}{behind}"));
                let up_to: Vec<usize> = whole.iter().copied().filter(|cut| *cut <= at).collect();
                let front = cuts(split, &format!("{front}a"));
                prop_assert_eq!(up_to, front, "in front, {}", pattern);
                let beyond = whole.iter().filter(|cut| **cut > at).map(|cut| cut - at);
                let beyond: Vec<usize> = beyond.collect();
                prop_assert_eq!(&beyond, &cuts(split, &behind), "behind, {}", pattern);
                let line = cuts(split, &format!("\n{behind}")).into_iter().filter(|cut| *cut > 1);
                let line: Vec<usize> = line.map(|cut| cut - 1).collect();
                prop_assert_eq!(beyond, line, "behind a line feed, {}", pattern);
            }
        }
    }
}
