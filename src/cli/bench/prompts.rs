//! What the load generator asks: random prompts of a given length, drawn by seed.
//!
//! A server's `/tokenize` tells which token ids are safe to send (those of ordinary words: no
//! special tokens, none outside the vocabulary) and how many tokens a word takes. A server without
//! it gets words, counted as one token each.

use anyhow::bail;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::bench::args::Endpoint;
use crate::cli::bench::stats::as_f64;
use crate::cli::client::{ApiClient, ModelEntry};

/// Common words; most tokenizers have one token for each of them with its leading space.
const WORDS: &str = "about after again also always another answer around away back because been \
    before best better between black book both bring call came change city clear close come could \
    country course cover dark deep different door down draw each early earth east enough even \
    every example eyes face fall family farm fast father feel field find fire first five follow \
    food form found four free friend from front full gave give goes gold gone good great green \
    ground group grow half hand hard have head hear heat help here high hold home horse hour house \
    hundred idea keep kind king knew know land large last late learn leave left less letter life \
    light line list little live long look love made main make many mark mean might mind minute \
    money moon more morning most mother mountain move much music must name near need never next \
    night north note nothing notice number often once only open order other over page paper part \
    pass people perhaps person picture piece place plain plan plane plant play point power press \
    problem product pull question quick rain reach read ready real rest right river road rock room \
    round rule same school science second seem sentence serve seven several shape ship short should \
    show side simple since sing slow small some song soon sound south space special stand star \
    start state stay step still stood stop story street strong study such sure surface system table \
    take talk tell than that them then there these they thing think this those though thought \
    thousand three through time together took town travel tree true turn under unit until very \
    voice wait walk want warm watch water week well went were west what wheel when where which \
    while white whole wind with wonder wood word work world would write year young your";

/// Fewer distinct ids than this would make prompts of different requests alike.
const MIN_DISTINCT_IDS: usize = 16;

/// Which requests are asked for; each has prompts of its own, so that warm-up requests don't fill
/// the prefix cache for the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Warmup,
    Measured,
}

/// How prompts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PromptKind {
    TokenIds,
    Words,
}

/// What a request looks like; lengths in tokens.
#[derive(Clone, Debug)]
pub(crate) struct PromptShape {
    pub(crate) endpoint: Endpoint,
    /// Names in requests, in turn; at least one.
    pub(crate) models: Vec<String>,
    pub(crate) input_len: usize,
    pub(crate) shared_prefix_len: usize,
    pub(crate) output_len: usize,
    pub(crate) temperature: f64,
    pub(crate) ignore_eos: bool,
    pub(crate) seed: u64,
    /// More fields of each request.
    pub(crate) extra: Map<String, Value>,
}

/// Makes request bodies; the same shape and pool give the same bodies.
#[derive(Clone, Debug)]
pub(crate) struct Prompts {
    shape: PromptShape,
    pool: Pool,
}

#[derive(Clone, Debug)]
enum Pool {
    TokenIds(Vec<u32>),
    Words { words: Vec<String>, tokens_per_word: f64 },
}

impl Prompts {
    /// Asks the server what its tokenizer makes of ordinary words.
    pub(crate) async fn prepare(client: &ApiClient, shape: PromptShape) -> Self {
        let text = format!(" {}", all_words().collect::<Vec<_>>().join(" "));
        let body = json!({
            "model": shape.models[0],
            "prompt": text,
            "add_special_tokens": false,
            "return_token_strs": true,
        });
        let tokenized = client.post_json("/tokenize", &body).await.ok();
        let pool = pool_from(tokenized.as_ref(), shape.endpoint);
        Self { shape, pool }
    }

    pub(crate) fn kind(&self) -> PromptKind {
        match self.pool {
            Pool::TokenIds(_) => PromptKind::TokenIds,
            Pool::Words { .. } => PromptKind::Words,
        }
    }

    /// The body of request number `index`.
    pub(crate) fn body(&self, phase: Phase, index: usize) -> Value {
        let shape = &self.shape;
        let mut body = json!({
            "model": shape.models[index % shape.models.len()],
            "max_tokens": shape.output_len,
            "temperature": shape.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if shape.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        // Stream 0 of the generator is the shared prefix, the others are the requests.
        let mut shared = generator(shape.seed, phase, 0);
        let mut own = generator(shape.seed, phase, index as u64 + 1);
        match (&self.pool, shape.endpoint) {
            (Pool::TokenIds(ids), _) => {
                let mut prompt = draw(ids, shape.shared_prefix_len, &mut shared);
                prompt.extend(draw(ids, shape.input_len, &mut own));
                body["prompt"] = json!(prompt);
            }
            (Pool::Words { words, tokens_per_word }, endpoint) => {
                let draw_text = |tokens, rng: &mut _| {
                    draw(words, words_for(tokens, *tokens_per_word), rng).join(" ")
                };
                let shared = draw_text(shape.shared_prefix_len, &mut shared);
                let own = draw_text(shape.input_len, &mut own);
                put_text(&mut body, endpoint, &shared, &own);
            }
        }
        for (field, value) in &shape.extra {
            body[field] = value.clone();
        }
        body
    }
}

/// Refuses lengths that the model can't hold, before any request is sent.
///
/// # Errors
/// Prompt and answer together are longer than the model's context.
pub(crate) fn check_fits(shape: &PromptShape, model: &ModelEntry) -> anyhow::Result<()> {
    let Some(limit) = model.max_model_len else { return Ok(()) };
    let asked = shape.shared_prefix_len + shape.input_len + shape.output_len;
    if asked as u64 > limit {
        bail!(
            "{} tokens of prompt ({} of them shared) and {} of answer are {asked}, but {} holds \
             {limit}: give shorter --input-len, --shared-prefix-len or --output-len",
            shape.shared_prefix_len + shape.input_len,
            shape.shared_prefix_len,
            shape.output_len,
            model.id,
        );
    }
    Ok(())
}

fn all_words() -> impl Iterator<Item = &'static str> {
    WORDS.split_whitespace()
}

fn pool_from(tokenized: Option<&Value>, endpoint: Endpoint) -> Pool {
    let tokens = tokenized.and_then(|answer| answer["tokens"].as_array());
    let mut ids: Vec<u32> = tokens
        .into_iter()
        .flatten()
        .filter_map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
        .collect();
    let num_tokens = ids.len();
    ids.sort_unstable();
    ids.dedup();
    if endpoint == Endpoint::Completions && ids.len() >= MIN_DISTINCT_IDS {
        return Pool::TokenIds(ids);
    }
    let whole = single_token_words(tokenized.map_or(&Value::Null, |answer| &answer["token_strs"]));
    if whole.len() >= MIN_DISTINCT_IDS {
        return Pool::Words { words: whole, tokens_per_word: 1.0 };
    }
    let words: Vec<String> = all_words().map(str::to_owned).collect();
    let tokens_per_word =
        if num_tokens == 0 { 1.0 } else { as_f64(num_tokens) / as_f64(words.len()) };
    Pool::Words { words, tokens_per_word }
}

/// The words that are one token with their leading space, which tokenizers write as a space, `Ġ`
/// (byte-level BPE) or `▁` (`SentencePiece`).
fn single_token_words(token_strs: &Value) -> Vec<String> {
    let known: std::collections::HashSet<&str> = all_words().collect();
    let tokens = token_strs.as_array().into_iter().flatten().filter_map(Value::as_str);
    tokens
        .filter_map(|token| token.strip_prefix([' ', 'Ġ', '▁']))
        .filter(|word| known.contains(word))
        .map(str::to_owned)
        .collect()
}

fn put_text(body: &mut Value, endpoint: Endpoint, shared: &str, own: &str) {
    match endpoint {
        Endpoint::Completions if shared.is_empty() => body["prompt"] = json!(format!(" {own}")),
        Endpoint::Completions => body["prompt"] = json!(format!(" {shared} {own}")),
        Endpoint::Chat => {
            let user = json!({"role": "user", "content": format!(" {own}")});
            body["messages"] = if shared.is_empty() {
                json!([user])
            } else {
                json!([{"role": "system", "content": format!(" {shared}")}, user])
            };
        }
    }
}

/// Nearest number of words, at least one for a prompt that is not empty.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn words_for(tokens: usize, tokens_per_word: f64) -> usize {
    // Casts saturate; a prompt is far shorter than 2^53 tokens.
    let words = (as_f64(tokens) / tokens_per_word).round() as usize;
    words.max(usize::from(tokens > 0))
}

fn draw<T: Clone>(pool: &[T], count: usize, rng: &mut ChaCha8Rng) -> Vec<T> {
    (0..count).map(|_| pool[rng.random_range(0..pool.len())].clone()).collect()
}

/// One generator for each (seed, phase, stream), independent of how many others are used.
fn generator(seed: u64, phase: Phase, stream: u64) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&stream.to_le_bytes());
    key[16] = u8::from(phase == Phase::Measured);
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(endpoint: Endpoint, tokenized: Option<&Value>) -> Prompts {
        let shape = PromptShape {
            endpoint,
            models: vec!["m".to_owned()],
            input_len: 40,
            shared_prefix_len: 10,
            output_len: 5,
            temperature: 0.0,
            ignore_eos: true,
            seed: 9,
            extra: Map::new(),
        };
        let pool = pool_from(tokenized, endpoint);
        Prompts { shape, pool }
    }

    fn ids(prompts: &Prompts, phase: Phase, index: usize) -> Vec<u64> {
        let body = prompts.body(phase, index);
        body["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    }

    #[test]
    fn draws_only_ids_that_the_tokenizer_gave() {
        let tokenized = json!({"tokens": (100..200).collect::<Vec<u32>>()});
        let prompts = prompts(Endpoint::Completions, Some(&tokenized));
        assert_eq!(prompts.kind(), PromptKind::TokenIds);
        let first = ids(&prompts, Phase::Measured, 0);
        assert_eq!(first.len(), 50);
        assert!(first.iter().all(|id| (100..200).contains(id)));
    }

    #[test]
    fn requests_share_the_prefix_and_nothing_else() {
        let tokenized = json!({"tokens": (0..1000).collect::<Vec<u32>>()});
        let prompts = prompts(Endpoint::Completions, Some(&tokenized));
        let (a, b) = (ids(&prompts, Phase::Measured, 0), ids(&prompts, Phase::Measured, 1));
        assert_eq!(a[..10], b[..10]);
        assert_ne!(a[10..], b[10..]);
        assert_eq!(a, ids(&prompts, Phase::Measured, 0));
        assert_ne!(a[..10], ids(&prompts, Phase::Warmup, 0)[..10]);
    }

    #[test]
    fn without_a_tokenizer_a_word_counts_as_a_token() {
        let prompts = prompts(Endpoint::Completions, None);
        assert_eq!(prompts.kind(), PromptKind::Words);
        let body = prompts.body(Phase::Measured, 3);
        assert_eq!(body["prompt"].as_str().unwrap().split_whitespace().count(), 50);
        assert_eq!(body["ignore_eos"], json!(true));
    }

    #[test]
    fn chat_uses_words_of_one_token_when_there_are_enough() {
        let strs: Vec<String> = all_words().take(20).map(|word| format!("Ġ{word}")).collect();
        let tokenized = json!({"tokens": (0..20).collect::<Vec<u32>>(), "token_strs": strs});
        let prompts = prompts(Endpoint::Chat, Some(&tokenized));
        let body = prompts.body(Phase::Measured, 0);
        assert_eq!(body["messages"][0]["role"], "system");
        let words: Vec<&str> =
            body["messages"][1]["content"].as_str().unwrap().split_whitespace().collect();
        assert_eq!(words.len(), 40);
        let allowed: Vec<&str> = all_words().take(20).collect();
        assert!(words.iter().all(|word| allowed.contains(word)));
    }

    #[test]
    fn chat_sends_fewer_words_when_words_are_several_tokens() {
        let count = all_words().count();
        let tokenized = json!({"tokens": (0..count * 4).collect::<Vec<usize>>()});
        let prompts = prompts(Endpoint::Chat, Some(&tokenized));
        let body = prompts.body(Phase::Measured, 0);
        let text = body["messages"][1]["content"].as_str().unwrap();
        assert_eq!(text.split_whitespace().count(), 10);
    }

    #[test]
    fn refuses_lengths_beyond_the_context_with_both_numbers() {
        let shape = prompts(Endpoint::Chat, None).shape;
        let model = |max_model_len| ModelEntry { id: "m".to_owned(), max_model_len };
        assert!(check_fits(&shape, &model(Some(55))).is_ok());
        assert!(check_fits(&shape, &model(None)).is_ok());
        let message = check_fits(&shape, &model(Some(54))).unwrap_err().to_string();
        assert!(message.contains("55") && message.contains("54"), "{message}");
    }

    #[test]
    fn the_word_list_has_no_word_twice() {
        let mut words: Vec<&str> = all_words().collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(count > 200);
    }
}
