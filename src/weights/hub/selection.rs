//! Which files of a repository are needed: the smallest set that a model loads from.

use crate::drafter_files::MASK_EMBEDDING;
use crate::lora::files as lora;
use crate::lora::files::is_task_file;
use crate::model_ref::{HubFile, has_gguf_ending};
use crate::projector::is_projector;
use crate::sentence_modules::TEXT_CONFIGS;
use crate::token_heads;

use super::error::HubError;
use crate::gguf::{beside, split};

/// Everything but weights, where a repository has it.
const SMALL_FILES: [&str; 15] = [
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tool_use.jinja",
    MODULES,
    "config_sentence_transformers.json",
    "artifact.metadata",
    MASK_EMBEDDING,
];
/// What there may be instead of `tokenizer.json`.
const OTHER_TOKENIZERS: [&str; 3] = ["tokenizer.model", "tekken.json", "tiktoken.model"];
/// What the name of a file of tiktoken may end in.
const TIKTOKEN_ENDING: &str = ".tiktoken";
/// What stands behind the network, for sentence-transformers.
const MODULES: &str = "modules.json";
const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
const PICKLE_ENDINGS: [&str; 2] = [".bin", ".pth"];
/// What is taken of many GGUF files when nothing else is said.
const DEFAULT_QUANTIZATION: &str = "Q4_K_M";

/// The files of a repository that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// A Hugging Face checkpoint; `small` goes first, so that complete weights mean a complete
    /// model.
    Checkpoint { small: Vec<String>, weights: WeightFiles },
    /// A model in GGUF, in order where it is in several files, and last the head that drafts for it, if
    /// there is one.
    Gguf(Vec<String>),
}

/// The weights of a Hugging Face checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WeightFiles {
    Single(String),
    /// Those that [`INDEX`] names, which is among the small files.
    Indexed,
}

/// Chooses among the `files` of a repository.
pub(crate) fn select(
    repository: &str,
    files: &[String],
    wanted: Option<&HubFile>,
) -> Result<Selection, HubError> {
    match wanted {
        Some(HubFile::Path(path)) => match files.iter().find(|file| *file == path) {
            Some(file) => whole_gguf(repository, files, file),
            None => Err(not_found(repository, format!("`{path}`"), files)),
        },
        Some(HubFile::Quantization(tag)) => gguf_with_tag(repository, files, tag),
        Some(HubFile::Adapter) => adapter(repository, files),
        None => match checkpoint(files) {
            Some(selection) => Ok(selection),
            None => any_gguf(repository, files),
        },
    }
}

/// The two files of an adapter.
fn adapter(repository: &str, files: &[String]) -> Result<Selection, HubError> {
    let has = |name: &str| files.iter().any(|file| file == name);
    match [lora::CONFIG, lora::TENSORS].into_iter().find(|name| !has(name)) {
        None => Ok(Selection::Checkpoint {
            small: vec![lora::CONFIG.to_owned()],
            weights: WeightFiles::Single(lora::TENSORS.to_owned()),
        }),
        Some(missing) => Err(not_found(repository, format!("`{missing}`"), files)),
    }
}

fn checkpoint(files: &[String]) -> Option<Selection> {
    let has = |name: &str| files.iter().any(|file| file == name);
    let mut small: Vec<_> =
        SMALL_FILES.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect();
    if !has("tokenizer.json") {
        let named = OTHER_TOKENIZERS.iter().find(|name| has(name));
        let ended =
            files.iter().find(|name| !name.contains('/') && name.ends_with(TIKTOKEN_ENDING));
        let other = named.map(|name| (*name).to_owned());
        small.extend(other.or_else(|| ended.cloned()));
    }
    if has(MODULES) {
        let wanted = |file: &&String| is_module_file(file) || TEXT_CONFIGS.contains(&file.as_str());
        small.extend(files.iter().filter(wanted).cloned());
        small.extend(files.iter().filter(|file| is_task_file(file)).cloned());
    }
    small.extend(token_heads::FILES.into_iter().filter(|name| has(name)).map(str::to_owned));
    let weights = if has(SINGLE) {
        WeightFiles::Single(SINGLE.to_owned())
    } else if has(INDEX) {
        small.push(INDEX.to_owned());
        WeightFiles::Indexed
    } else {
        let mut others = files.iter().filter(|file| is_other_checkpoint(file));
        match (others.next(), others.next()) {
            (Some(only), None) => WeightFiles::Single(only.clone()),
            _ => return None,
        }
    };
    Some(Selection::Checkpoint { small, weights })
}

/// `2_Dense/config.json`, and its few weights.
fn is_module_file(file: &str) -> bool {
    let Some((folder, name)) = file.split_once('/') else { return false };
    folder.starts_with(|c: char| c.is_ascii_digit()) && (name == "config.json" || name == SINGLE)
}

fn is_other_checkpoint(file: &str) -> bool {
    file.ends_with(".safetensors") && !file.contains('/') && !file.starts_with("adapter_")
}

fn any_gguf(repository: &str, files: &[String]) -> Result<Selection, HubError> {
    let mut ggufs = files.iter().filter(|file| is_model_gguf(file));
    match (ggufs.next(), ggufs.next()) {
        (Some(only), None) => whole_gguf(repository, files, only),
        (Some(first), Some(_)) if is_all_parts_of(first, files) => {
            whole_gguf(repository, files, first)
        }
        (Some(_), Some(_)) => gguf_with_tag(repository, files, DEFAULT_QUANTIZATION),
        (None, _) => Err(no_weights(repository, files)),
    }
}

fn gguf_with_tag(repository: &str, files: &[String], tag: &str) -> Result<Selection, HubError> {
    let mut matching = files.iter().filter(|file| is_model_gguf(file) && has_tag(file, tag));
    match (matching.next(), matching.next()) {
        (Some(only), None) => whole_gguf(repository, files, only),
        (Some(first), Some(second)) if !is_same_model(first, second) => {
            let wanted = format!("that `{tag}` means alone");
            let both = [first.clone(), second.clone()];
            Err(not_found(repository, wanted, &both))
        }
        (Some(part), _) => whole_gguf(repository, files, part),
        (None, _) => Err(not_found(repository, format!("for the quantization `{tag}`"), files)),
    }
}

/// The file, or all parts of the model that it is one of.
fn whole_gguf(repository: &str, files: &[String], file: &str) -> Result<Selection, HubError> {
    let mut parts = split::parts(file).unwrap_or_else(|| vec![file.to_owned()]);
    match parts.iter().find(|part| !files.contains(part)) {
        None => {
            let head = beside::head_of(file, files.iter().map(String::as_str));
            parts.extend(head.filter(|_| is_model_gguf(file)).map(str::to_owned));
            Ok(Selection::Gguf(parts))
        }
        Some(missing) => Err(not_found(repository, format!("`{missing}`"), files)),
    }
}

fn is_same_model(first: &str, second: &str) -> bool {
    split::parts(first).is_some_and(|parts| parts.iter().any(|part| part == second))
}

/// Whether the only model here is in parts, of which this is one.
fn is_all_parts_of(first: &str, files: &[String]) -> bool {
    files.iter().filter(|file| is_model_gguf(file)).all(|file| is_same_model(first, file))
}

/// Vision projectors, importance matrices and heads that draft are GGUF files too.
pub(crate) fn is_model_gguf(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let other = ["imatrix", "-dflash"].iter().any(|part| name.contains(part));
    has_gguf_ending(&name) && !is_projector(&name) && !other && !beside::is_head(&name)
}

/// Whether the file name has `tag` as a word: `Q4_K` is not in `Q4_K_M`.
fn has_tag(file: &str, tag: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let tag = tag.to_ascii_lowercase();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    name.match_indices(&tag).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + tag.len()..].chars().next();
        !is_word(before) && !is_word(after)
    })
}

fn no_weights(repository: &str, files: &[String]) -> HubError {
    let pickle = files.iter().find(|file| {
        let start = file.starts_with("pytorch_model") || file.starts_with("consolidated");
        start && PICKLE_ENDINGS.iter().any(|ending| file.ends_with(ending))
    });
    if let Some(pickle) = pickle {
        return HubError::Refused {
            repository: repository.to_owned(),
            reason: format!(
                "only pickle weights ({pickle}), which can run code when read, and no \
                 safetensors; look for a converted revision, such as `{repository}@refs/pr/1`"
            ),
        };
    }
    not_found(repository, format!("with weights ({SINGLE}, {INDEX} or a GGUF file)"), files)
}

fn not_found(repository: &str, wanted: String, files: &[String]) -> HubError {
    let ggufs: Vec<_> = files.iter().filter(|file| has_gguf_ending(file)).cloned().collect();
    let shown = if ggufs.is_empty() { files } else { &ggufs };
    let more = if shown.len() > 20 { ", ..." } else { "" };
    let shown: Vec<_> = shown.iter().take(20).map(String::as_str).collect();
    HubError::FileNotFound {
        repository: repository.to_owned(),
        wanted,
        available: format!("it has {}{more}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(files: &[&str], wanted: Option<&HubFile>) -> Result<Selection, String> {
        let files: Vec<_> = files.iter().map(|file| (*file).to_owned()).collect();
        select("o/n", &files, wanted).map_err(|error| error.to_string())
    }

    fn gguf(file: &str) -> Selection {
        Selection::Gguf(vec![file.to_owned()])
    }

    const QUANTIZED: [&str; 5] =
        ["README.md", "m-q4_k_m.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "mmproj-m-Q8_0.gguf"];

    #[test]
    fn a_checkpoint_is_config_tokenizer_and_one_format_of_weights() {
        let files = [
            ".gitattributes",
            "README.md",
            "config.json",
            "consolidated.safetensors",
            "model.safetensors",
            "pytorch_model.bin",
            "tokenizer.json",
            "x.gguf",
        ];
        let expected = Selection::Checkpoint {
            small: vec!["config.json".into(), "tokenizer.json".into()],
            weights: WeightFiles::Single("model.safetensors".into()),
        };
        assert_eq!(choose(&files, None), Ok(expected));
        let files = ["config.json", "model-00001-of-00001.safetensors", INDEX];
        let expected = Selection::Checkpoint {
            small: vec!["config.json".into(), INDEX.into()],
            weights: WeightFiles::Indexed,
        };
        assert_eq!(choose(&files, None), Ok(expected));
    }

    #[test]
    fn modules_of_sentence_transformers_come_with_their_files() {
        let files = [
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "2_Dense/pytorch_model.bin",
            "config.json",
            "model.safetensors",
            "modules.json",
            "onnx/model.onnx",
            "sentence_bert_config.json",
        ];
        let small = ["config.json", "modules.json", files[0], files[1], files[2], files[8]];
        let expected = Selection::Checkpoint {
            small: small.map(str::to_owned).into(),
            weights: WeightFiles::Single("model.safetensors".into()),
        };
        assert_eq!(choose(&files, None), Ok(expected));
    }

    #[test]
    fn the_mask_of_a_drafter_comes_with_it() {
        let files = ["config.json", "mask_embedding.pt", "model.safetensors"];
        let expected = Selection::Checkpoint {
            small: files[..2].iter().map(|name| (*name).to_owned()).collect(),
            weights: WeightFiles::Single("model.safetensors".into()),
        };
        assert_eq!(choose(&files, None), Ok(expected));
    }

    #[test]
    fn heads_of_tokens_come_with_a_checkpoint_and_are_none_themselves() {
        let files = ["colbert_linear.pt", "config.json", "model.safetensors", "sparse_linear.pt"];
        let expected = Selection::Checkpoint {
            small: ["config.json", files[3], files[0]].map(str::to_owned).into(),
            weights: WeightFiles::Single("model.safetensors".into()),
        };
        assert_eq!(choose(&files, None), Ok(expected));
        let pickled = ["colbert_linear.pt", "config.json", "pytorch_model.bin", "sparse_linear.pt"];
        let refused = choose(&pickled, None).unwrap_err();
        assert!(refused.contains("only pickle weights (pytorch_model.bin)"), "{refused}");
    }

    #[test]
    fn a_gguf_file_is_chosen_by_path_quantization_or_default() {
        assert_eq!(choose(&QUANTIZED, None), Ok(gguf("m-q4_k_m.gguf")));
        let tag = |tag: &str| choose(&QUANTIZED, Some(&HubFile::Quantization(tag.to_owned())));
        assert_eq!(tag("q8_0"), Ok(gguf("m-Q8_0.gguf")));
        let path = HubFile::Path("mmproj-m-Q8_0.gguf".to_owned());
        assert_eq!(choose(&QUANTIZED, Some(&path)), Ok(gguf("mmproj-m-Q8_0.gguf")));
        let beside =
            ["mtp-m-Q4_K_M.gguf", "m-DFlash-Q4_K_M.gguf", "mmproj-F16.gguf", "m-Q4_K_M.gguf"];
        let with_head = ["m-Q4_K_M.gguf", "mtp-m-Q4_K_M.gguf"].map(str::to_owned);
        let with_head = Ok(Selection::Gguf(with_head.to_vec()));
        assert_eq!(choose(&beside, None), with_head);
        let wanted = HubFile::Quantization("Q4_K_M".to_owned());
        assert_eq!(choose(&beside, Some(&wanted)), with_head);
        let head = HubFile::Path("mtp-m-Q4_K_M.gguf".to_owned());
        assert_eq!(choose(&beside, Some(&head)), Ok(gguf("mtp-m-Q4_K_M.gguf")));
        let missing = tag("Q4_K").unwrap_err();
        assert!(missing.contains("`Q4_K`") && missing.contains("m-Q4_K_S.gguf"), "{missing}");
        let missing = choose(&QUANTIZED, Some(&HubFile::Path("z.gguf".into()))).unwrap_err();
        assert!(missing.contains("no file `z.gguf`: it has m-q4_k_m.gguf"), "{missing}");
    }

    #[test]
    fn an_adapter_is_its_two_files() {
        let files = ["README.md", lora::CONFIG, lora::TENSORS, "tokenizer.json"];
        let expected = Selection::Checkpoint {
            small: vec![lora::CONFIG.into()],
            weights: WeightFiles::Single(lora::TENSORS.into()),
        };
        assert_eq!(choose(&files, Some(&HubFile::Adapter)), Ok(expected));
        let pickle = choose(&[lora::CONFIG, "adapter_model.bin"], Some(&HubFile::Adapter));
        assert!(pickle.unwrap_err().contains("no file `adapter_model.safetensors`"));
    }

    #[test]
    fn all_parts_of_a_model_are_taken() {
        let parts = ["q4_k_m-00001-of-00002.gguf", "q4_k_m-00002-of-00002.gguf"];
        let all = Ok(Selection::Gguf(parts.map(str::to_owned).to_vec()));
        assert_eq!(choose(&parts, None), all);
        let second = HubFile::Path(parts[1].to_owned());
        assert_eq!(choose(&[parts[0], parts[1], "m-Q8_0.gguf"], Some(&second)), all);
        let tag = HubFile::Quantization("Q4_K_M".to_owned());
        assert_eq!(choose(&["m-Q8_0.gguf", parts[1], parts[0]], Some(&tag)), all);
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let pickle = choose(&["config.json", "pytorch_model.bin"], None).unwrap_err();
        assert!(pickle.contains("only pickle weights (pytorch_model.bin)"), "{pickle}");
        let missing = choose(&["q4_k_m-00001-of-00002.gguf"], None).unwrap_err();
        assert!(missing.contains("`q4_k_m-00002-of-00002.gguf`"), "{missing}");
        let nothing = choose(&["README.md"], None).unwrap_err();
        assert!(nothing.contains("it has README.md"), "{nothing}");
        let two = ["a-Q8_0.gguf", "b-Q8_0.gguf"];
        let error = choose(&two, Some(&HubFile::Quantization("Q8_0".into()))).unwrap_err();
        assert!(error.contains("a-Q8_0.gguf, b-Q8_0.gguf"), "{error}");
    }
}
