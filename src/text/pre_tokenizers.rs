//! How byte-level vocabularies cut text into words before merging: the rules behind the names in
//! `tokenizer.ggml.pre` of a GGUF file.
//!
//! The regular expressions are those of the models' own `tokenizer.json`; each cuts what the ones
//! before it left, matches and gaps alike. A name that is not listed is an error, since guessing
//! would change ids silently.

/// The rules that a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PreTokenizer {
    /// Applied one after the other.
    pub(super) patterns: &'static [&'static str],
    /// Whether a word that is a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether prompts begin with bos where the file doesn't say.
    pub(super) add_bos: bool,
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

const fn rules(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { patterns, ignore_merges: false, add_bos: false }
}

/// The rules called `name`.
pub(super) fn find(name: &str) -> Option<PreTokenizer> {
    Some(match name {
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0"
        | "lfm2" | "laguna" => {
            PreTokenizer { patterns: &[LLAMA3], ignore_merges: true, add_bos: true }
        }
        "tekken" => PreTokenizer { patterns: &[TEKKEN], ignore_merges: true, add_bos: true },
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => rules(&[LLAMA3]),
        "qwen2" | "deepseek-r1-qwen" | "megrez" | "stablelm2" | "hunyuan" | "solar-open"
        | "grok-2" | "kormo" | "openpangu" => rules(&[QWEN2]),
        "qwen35" => rules(&[QWEN35]),
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => rules(&[GPT4O]),
        "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "gigachat" | "a.x-4.0" | "mellum"
        | "modern-bert" | "trillion" | "granite-docling" | "exaone4" => rules(&[GPT2]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b"
        | "mellum2" | "cohere2_moe" => rules(&[r"\p{N}", GPT2]),
        "exaone-moe" => rules(&[EXAONE_MOE]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => rules(&[BAILING]),
        "seed-coder" => rules(&[SEED]),
        "deepseek-llm" => rules(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ]),
        "deepseek-coder" => {
            rules(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"])
        }
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => {
            rules(&[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3])
        }
        "falcon" => rules(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
        "bloom" | "poro-chat" | "gpt3-finnish" => rules(&[r" ?[^(\s|.,!?…。，、।۔،)]+"]),
        "viking" => rules(&[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"]),
        "default" => rules(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }

    #[test]
    fn every_pattern_compiles() {
        for name in [
            "llama-bpe",
            "tekken",
            "qwen35",
            "gpt-4o",
            "deepseek-llm",
            "deepseek-coder",
            "deepseek-v3",
            "bloom",
            "viking",
            "default",
            "exaone-moe",
            "bailingmoe",
            "seed-coder",
        ] {
            assert_eq!(words(name, "Añ \n12 你好!").concat(), "Añ \n12 你好!", "{name}");
        }
    }

    #[test]
    fn unknown_names_are_not_guessed() {
        assert!(find("qwen99").is_none());
    }
}
