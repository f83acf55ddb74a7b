//! The vocabulary of a folder in the words of GGUF.
//!
//! A file names the rules that cut text into words. Which name that is shows by trying: every name that the reader
//! knows makes a tokenizer of the same tokens, and that one is right which gives the ids of the folder's own, to
//! odd texts and to the text of every token. Two sets of rules that give those the same ids differ only in texts
//! where they cut what no token spans.

use anyhow::{Context, bail};

use crate::app::tokenizer::{eos_token_ids, stored_vocabulary, tokenizer, vocabulary_of};
use crate::text::tokenizer::Tokenizer;
use crate::text::vocabulary::{Vocabulary, from_json};
use crate::weights::gguf::vocabulary::GgufVocabulary;
use crate::weights::gguf::write::entries::Entry;
use crate::weights::source::ModelSource;

/// Texts on which rules differ: letters with and without case, marks, digits of all kinds and lengths, spaces and
/// ends of lines in all orders, contractions, signs before and after words, scripts without spaces.
const PROBES: &[&str] = &[
    "a",
    " a",
    "  two  spaces   three    four     ",
    "The quick brown Fox's den; they'LL see I'm WE'RE don't",
    "CamelCaseWORDSandMore snake_case kebab-case a/b\\c",
    "1 12 123 1234 12345 1234567 1,234.5 12a34 a1 v2.0 0x1F ٣٤٥ ½ ²",
    "\n\n\n\t tabs\t\tand\r\n\r\nlines \n  \n end \n",
    "!!! ... --- === /// //\n #include <x> {}[]() \"quoted\" 'single' `code` $5 100% a@b.c",
    "naïve café e\u{301} Straße ÅÄÖ ﬁ ＡＢ Ǆ ŉ",
    "你好，世界。这是123测试！ こんにちは、カタカナ 안녕하세요 가각 ㄅㄆ",
    "Привет, мир! Γειά σου κόσμε שלום عَرَبِيّ हिन्दी ไทย ქართული",
    "😀👍🏽👨‍👩‍👧 ∑∫ →←  ‘curly’ “quotes” … – —",
    "x\u{a0}y\u{2003}z\u{200b}w\u{feff}v\u{0}u",
    "def f(x):\n    return x + 1  # a comment\n\n\nclass A:\n\tpass\n",
    "    # a comment",
    "      12 items\n    - one\n  \t!two\n     ünder",
    "https://example.com/a?b=c&d=e user@example.com +1 (234) 567-8900",
];

/// The kind of a token that nothing is written with.
const UNUSED: i32 = 5;

/// A vocabulary that gives the folder's ids.
pub(super) struct Found {
    pub(super) entries: Vec<(String, Entry)>,
    vocabulary: Vocabulary,
    ends: Vec<u32>,
}

/// Finds the vocabulary of a model with so many rows of embeddings.
pub(super) fn find(source: &ModelSource, rows: usize) -> anyhow::Result<Found> {
    let own = tokenizer(source, None)?;
    let mut names = Vec::new();
    for mut candidate in candidates(source)? {
        complete(&mut candidate, &own, rows)?;
        names.push(candidate.pre.clone().unwrap_or_else(|| candidate.kind.clone()));
        // A kind that the tokens don't fit is none.
        let Ok(made) = candidate.tokenizer() else { continue };
        if same(&own, &made, &candidate)? {
            return Ok(found(source, candidate, &own));
        }
    }
    bail!(
        "none of the tokenizers that GGUF files can name gives the ids of the folder's own; tried were {}",
        names.join(", ")
    )
}

/// What the vocabulary may be called in a file, the likeliest first; each is made when it is asked for.
fn candidates(source: &ModelSource) -> anyhow::Result<Box<dyn Iterator<Item = Vocabulary>>> {
    let (vocabulary, patterns) = if let Some(json) = &source.tokenizer_json {
        from_json::vocabulary(json).context("tokenizer.json")?
    } else {
        let mut vocabulary = stored_vocabulary(source)?;
        let patterns = vocabulary.split.take().into_iter().collect();
        (vocabulary.whole_words, vocabulary.sentence_pieces) = (false, false);
        (vocabulary, patterns)
    };
    if vocabulary.kind == "gpt2" {
        let names = from_json::pre_tokenizer_names(&patterns).into_iter().map(str::to_owned);
        let names: Vec<String> = vocabulary.pre.clone().into_iter().chain(names).collect();
        let called = move |pre| Vocabulary { pre: Some(pre), ..vocabulary.clone() };
        return Ok(Box::new(names.into_iter().map(called)));
    }
    let with_merges = Vocabulary {
        kind: "gemma4".to_owned(),
        scores: Vec::new(),
        add_space_prefix: None,
        ..vocabulary.clone()
    };
    let flipped = vocabulary
        .add_space_prefix
        .map(|prefix| Vocabulary { add_space_prefix: Some(!prefix), ..vocabulary.clone() });
    let merged = (!with_merges.merges.is_empty()).then_some(with_merges);
    // The reader makes merges of scores.
    let pieces = [Some(vocabulary), flipped].into_iter().flatten();
    let pieces = pieces.map(|pieces| Vocabulary { merges: Vec::new(), ..pieces });
    Ok(Box::new(pieces.chain(merged)))
}

/// Adds what other files of the folder say, and a token for every row.
fn complete(vocabulary: &mut Vocabulary, own: &Tokenizer, rows: usize) -> anyhow::Result<()> {
    let tokens = vocabulary.tokens.len();
    if tokens > rows {
        bail!(
            "the tokenizer has {tokens} tokens, the embedding {rows} rows; a GGUF file needs one for each"
        );
    }
    vocabulary.token_types.resize(tokens, 1);
    vocabulary.tokens.resize(rows, String::new());
    vocabulary.token_types.resize(rows, UNUSED);
    if !vocabulary.scores.is_empty() {
        vocabulary.scores.resize(rows, -1e4);
    }
    for (id, (text, kind)) in
        vocabulary.tokens.iter_mut().zip(&mut vocabulary.token_types).enumerate()
    {
        if *kind == UNUSED && text.is_empty() {
            *text = format!("[PAD{id}]");
        } else if *kind == 1 && own.is_special(u32::try_from(id)?) {
            *kind = 3;
        }
    }
    let named = own.special_tokens();
    let id = |name: &str| named.get(name).and_then(|text| own.token_id(text));
    vocabulary.bos_id = own.bos_id();
    vocabulary.eos_id = own.eos_id();
    vocabulary.unk_id = vocabulary.unk_id.or(id("unk_token"));
    vocabulary.pad_id = id("pad_token");
    vocabulary.sep_id = id("sep_token");
    // What it does says more than what is written about it.
    let (plain, whole) = (own.encode("a", false)?, own.encode("a", true)?);
    let added = whole.len().saturating_sub(plain.len());
    vocabulary.add_bos =
        Some(added > 0 && whole.first().copied() == own.bos_id() && own.bos_id().is_some());
    vocabulary.add_eos =
        Some(added > 0 && whole.last().copied() == own.eos_id() && own.eos_id().is_some());
    Ok(())
}

/// Whether both give the same ids.
fn same(own: &Tokenizer, made: &Tokenizer, vocabulary: &Vocabulary) -> anyhow::Result<bool> {
    for probe in PROBES {
        for special in [false, true] {
            if own.encode(probe, special)? != made.encode(probe, special)? {
                return Ok(false);
            }
        }
    }
    // Each token's text alone, and in a text where it may be cut otherwise.
    for (id, kind) in (0u32..).zip(&vocabulary.token_types) {
        if *kind == UNUSED {
            continue;
        }
        let Ok(text) = String::from_utf8(own.token_bytes(id)) else { continue };
        // SentencePiece puts a space before a token that was added, readers of files don't.
        if *kind != 1 && own.encode(&text, false)? != [id] {
            continue;
        }
        let texts = if *kind == 1 { vec![format!("a{text}b"), text] } else { vec![text] };
        for text in texts {
            if own.encode(&text, false)? != made.encode(&text, false)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The entries of a vocabulary.
fn found(source: &ModelSource, vocabulary: Vocabulary, own: &Tokenizer) -> Found {
    let mut entries = Vec::new();
    let mut set = |key: &str, value: Entry| entries.push((format!("tokenizer.{key}"), value));
    set("ggml.model", Entry::Text(vocabulary.kind.clone()));
    if let Some(pre) = &vocabulary.pre {
        set("ggml.pre", Entry::Text(pre.clone()));
    } else if vocabulary.kind == "llama" {
        set("ggml.pre", Entry::Text("default".to_owned()));
    }
    set("ggml.tokens", Entry::Texts(vocabulary.tokens.clone()));
    if !vocabulary.scores.is_empty() {
        set("ggml.scores", Entry::F32s(vocabulary.scores.clone()));
    }
    set("ggml.token_type", Entry::I32s(vocabulary.token_types.clone()));
    if !vocabulary.merges.is_empty() {
        set("ggml.merges", Entry::Texts(vocabulary.merges.clone()));
    }
    let ends = eos_token_ids(source, own).to_vec();
    // A file has room for the end of a text, of a turn and of a message.
    // The first of them is no text to the reader, whatever the tokenizer takes it for.
    let eos = vocabulary.eos_id.or_else(|| ends.iter().copied().find(|id| own.is_special(*id)));
    let mut rest = ends.iter().copied().filter(|id| Some(*id) != eos);
    let ids = [
        ("bos_token_id", vocabulary.bos_id),
        ("eos_token_id", eos),
        ("eot_token_id", rest.next()),
        ("eom_token_id", rest.next()),
        ("unknown_token_id", vocabulary.unk_id),
        ("seperator_token_id", vocabulary.sep_id),
        ("padding_token_id", vocabulary.pad_id),
    ];
    for (name, id) in ids {
        if let Some(id) = id {
            set(&format!("ggml.{name}"), Entry::U32(id));
        }
    }
    let switches = [
        ("add_bos_token", vocabulary.add_bos),
        ("add_eos_token", vocabulary.add_eos),
        ("add_space_prefix", vocabulary.add_space_prefix),
        ("remove_extra_whitespaces", vocabulary.remove_extra_whitespaces),
    ];
    for (name, on) in switches {
        if let Some(on) = on {
            set(&format!("ggml.{name}"), Entry::Bool(on));
        }
    }
    if !vocabulary.precompiled_charsmap.is_empty() {
        let charsmap = vocabulary.precompiled_charsmap.clone();
        set("ggml.precompiled_charsmap", Entry::Bytes(charsmap));
    }
    if let Some(template) = &source.chat_template {
        set("chat_template", Entry::Text(template.clone()));
    }
    if let Some(template) = &source.tool_use_template {
        set("chat_templates", Entry::Texts(vec!["tool_use".to_owned()]));
        set("chat_template.tool_use", Entry::Text(template.clone()));
    }
    Found { entries, vocabulary: Vocabulary { eos_id: eos, ..vocabulary }, ends }
}

impl Found {
    /// Checks what the reader made of the entries.
    pub(super) fn check(&self, read: GgufVocabulary) -> Result<(), String> {
        let ends = read.end_token_ids();
        if let Some(id) = self.ends.iter().find(|id| !ends.contains(id)) {
            return Err(format!(
                "the token {id} would not end an answer: there are too many that do"
            ));
        }
        let read = vocabulary_of(read);
        let pre = read.pre.clone().filter(|_| self.vocabulary.pre.is_some());
        if (Vocabulary { pre, ..read }) == self.vocabulary {
            return Ok(());
        }
        Err("its vocabulary would be read otherwise than it was written".to_owned())
    }
}
