//! From a specification to an automaton, within a time and a size, and only once.
//!
//! Compiling can't be interrupted, so it runs on a thread of its own: the caller stops waiting when
//! the time is up, and what the thread makes in the end is there for the next request that asks.
//! What a thread may use up is bounded beforehand (see `schema` and the limits below), and so is
//! the number of threads. Blocking: call it where blocking is allowed.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llguidance::Logger;
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, TopLevelGrammar};
use toktrie::InferenceCapabilities;

use super::error::{GrammarError, first_line};
use super::grammar::Grammar;
use super::spec::GrammarSpec;
use super::vocabulary::Vocabulary;
use super::{json_string, notation, schema, structural_tag};

/// What compiling and remembering may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilerLimits {
    /// How long a caller waits for its grammar once it is being compiled.
    pub time: Duration,
    /// How long a caller waits for that to begin.
    pub patience: Duration,
    /// Bytes of a specification, spelled out.
    pub spec_bytes: usize,
    /// Grammars that are being compiled at once.
    pub threads: usize,
    /// Grammars that are remembered. Each may grow to some 40 MB as texts explore it, if it was
    /// written to; a usual one takes a few.
    pub cached: usize,
    /// Bytes of the specifications of the grammars that are remembered.
    pub cached_bytes: usize,
}

impl Default for CompilerLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            spec_bytes: 1 << 20,
            threads: 4,
            cached: 64,
            cached_bytes: 8 << 20,
        }
    }
}

/// The parser recurses over rules and groups: their number and this stack belong together.
const STACK_BYTES: usize = 256 << 20;
/// Compiles grammars for one vocabulary. Clones share the work and what is remembered.
#[derive(Clone, Debug)]
pub struct GrammarCompiler {
    shared: Arc<Shared>,
}

struct Shared {
    vocabulary: Arc<Vocabulary>,
    limits: CompilerLimits,
    cache: Mutex<Cache>,
    /// Notified whenever one less grammar is being compiled.
    place: Condvar,
}

type Outcome = Result<Arc<Grammar>, GrammarError>;

impl GrammarCompiler {
    /// A compiler for `vocabulary`.
    pub fn new(vocabulary: Arc<Vocabulary>, limits: CompilerLimits) -> Self {
        let cache = Mutex::new(Cache::default());
        Self { shared: Arc::new(Shared { vocabulary, limits, cache, place: Condvar::new() }) }
    }

    /// The vocabulary that grammars are compiled for.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.shared.vocabulary
    }

    /// What stands for `spec` inside of a rule of a Lark grammar that is yet to be compiled; `None`
    /// where it can only be a whole text.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn nested(&self, spec: &GrammarSpec) -> Result<Option<String>, GrammarError> {
        nested_lark(spec, &self.shared.vocabulary)
    }

    /// What stands for `spec` inside of a rule, between the quotes of a JSON string whose value
    /// follows it: a regular expression, or a context-free grammar.
    ///
    /// # Errors
    /// When it can't be read, or describes more than texts.
    pub fn nested_in_string(&self, spec: &GrammarSpec) -> Result<String, GrammarError> {
        let lark = json_string::quoted(&notation::to_lark(spec, &self.shared.vocabulary)?)?;
        Ok(format!("%lark {{\n{lark}\n}}"))
    }

    /// The grammar of `spec`; waits for it as long as the limits allow.
    ///
    /// # Errors
    /// When the specification is wrong, can't be enforced, or is above a bound.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Arc<Grammar>, GrammarError> {
        let key = spec.cache_key();
        let limit = self.shared.limits.spec_bytes;
        if key.len() > limit {
            let actual = key.len();
            return Err(GrammarError::TooLarge { what: "bytes of the grammar", actual, limit });
        }
        let CompilerLimits { time, patience, threads, .. } = self.shared.limits;
        let until = Instant::now() + patience;
        let mut cache = self.shared.lock();
        let pending = loop {
            match cache.get(&key) {
                Some(Entry::Done(grammar)) => return Ok(grammar),
                Some(Entry::Pending(pending)) => break pending,
                None if cache.num_pending < threads => break self.start(&mut cache, key, spec)?,
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GrammarError::Busy(threads));
            }
            let waited = self.shared.place.wait_timeout(cache, left);
            cache = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(cache);
        pending.wait(time)
    }

    fn start(
        &self,
        cache: &mut Cache,
        key: String,
        spec: &GrammarSpec,
    ) -> Result<Arc<Pending>, GrammarError> {
        let pending = Arc::new(Pending::default());
        let (shared, promise, spec) =
            (Arc::clone(&self.shared), Arc::clone(&pending), spec.clone());
        let name = key.clone();
        let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
        let run = move || {
            let compile = AssertUnwindSafe(|| Ok(compile(&shared.vocabulary, &spec)));
            let outcome = llguidance::panic_utils::catch_unwind(compile);
            let outcome = outcome.unwrap_or_else(|panic| {
                Err(GrammarError::Internal(first_line(&panic.to_string())))
            });
            shared.lock().finish(&name, &outcome, &shared.limits);
            shared.place.notify_all();
            promise.keep(outcome);
        };
        thread.spawn(run).map_err(|error| GrammarError::Internal(error.to_string()))?;
        cache.begin(key, Arc::clone(&pending));
        Ok(pending)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A grammar that is being compiled.
#[derive(Default)]
struct Pending {
    outcome: Mutex<Option<Outcome>>,
    kept: Condvar,
}

impl Pending {
    fn keep(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.kept.notify_all();
    }

    fn wait(&self, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = outcome.as_ref() {
                return outcome.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GrammarError::TooSlow(time));
            }
            let waited = self.kept.wait_timeout(outcome, left);
            outcome = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[derive(Clone)]
enum Entry {
    Done(Arc<Grammar>),
    Pending(Arc<Pending>),
}

/// What was compiled and is being compiled, by the key of its specification.
#[derive(Default)]
struct Cache {
    entries: HashMap<String, Entry>,
    // Keys of the grammars that are done, the longest unused first.
    order: VecDeque<String>,
    bytes: usize,
    num_pending: usize,
}

impl Cache {
    fn get(&mut self, key: &str) -> Option<Entry> {
        let entry = self.entries.get(key)?.clone();
        if let Some(at) = self.order.iter().position(|known| known == key)
            && let Some(key) = self.order.remove(at)
        {
            self.order.push_back(key);
        }
        Some(entry)
    }

    fn begin(&mut self, key: String, pending: Arc<Pending>) {
        self.num_pending += 1;
        self.entries.insert(key, Entry::Pending(pending));
    }

    // Failures aren't remembered: they are found again quickly, or were bad luck.
    fn finish(&mut self, key: &str, outcome: &Outcome, limits: &CompilerLimits) {
        self.num_pending -= 1;
        self.entries.remove(key);
        let Ok(grammar) = outcome else { return };
        self.entries.insert(key.to_owned(), Entry::Done(Arc::clone(grammar)));
        self.order.push_back(key.to_owned());
        self.bytes += key.len();
        while self.order.len() > limits.cached || self.bytes > limits.cached_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= oldest.len();
            self.entries.remove(&oldest);
        }
    }
}

fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2_000,
        initial_lexer_fuel: 1_000_000,
        // The two that bound a step, to some ten milliseconds each but for ambiguous grammars.
        step_lexer_fuel: 200_000,
        step_max_items: 20_000,
        // Some 40 MB a grammar.
        max_lexer_states: 30_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

fn compile(vocabulary: &Arc<Vocabulary>, spec: &GrammarSpec) -> Outcome {
    let factory = vocabulary.parsers()?;
    let grammar = match spec {
        GrammarSpec::JsonObject => {
            let schema = schema::prepare(&serde_json::json!({"type": "object"}))?;
            GrammarWithLexer::from_json_schema(schema)
        }
        GrammarSpec::JsonSchema(schema) => {
            GrammarWithLexer::from_json_schema(schema::prepare(schema)?)
        }
        GrammarSpec::StructuralTag(structure) => {
            let text = structural_tag::to_lark(structure, vocabulary)?;
            notation::check_size(&text)?;
            GrammarWithLexer::from_lark(text)
        }
        other => GrammarWithLexer::from_lark(notation::to_lark(other, vocabulary)?),
    };
    let parser = factory.create_parser_from_init_ext(
        GrammarInit::Serialized(TopLevelGrammar::from_grammar(grammar)),
        Logger::new(0, 0),
        InferenceCapabilities {
            ff_tokens: factory.tok_env().tokenize_is_canonical(),
            ..Default::default()
        },
        limits(),
    );
    let mut pristine = parser.map_err(|error| explain(&error, spec))?;
    pristine.start_without_prompt();
    let grammar = Arc::new(Grammar::new(Arc::clone(vocabulary), pristine));
    try_first_steps(&grammar)?;
    Ok(grammar)
}

// A grammar whose first steps are beyond the limits is refused now, not in the middle of a
// generation.
fn try_first_steps(grammar: &Arc<Grammar>) -> Result<(), GrammarError> {
    let mut cursor = grammar.cursor();
    cursor.mask()?;
    // As far into objects and arrays as the first choice among all properties.
    for text in ["[", "{"] {
        let trie = grammar.pristine.token_env.tok_trie();
        if let Some(id) = trie.token_id(text.as_bytes())
            && cursor.allows(id)?
        {
            cursor.accept(id)?;
            cursor.mask()?;
        }
    }
    Ok(())
}

/// What stands for `spec` inside of a rule, its schemas as they are: whoever compiles the rule makes
/// them ready. `None` for what can only be a whole text.
fn nested_lark(
    spec: &GrammarSpec,
    vocabulary: &Vocabulary,
) -> Result<Option<String>, GrammarError> {
    let nested = |text: &str| format!("%lark {{\n{text}\n}}");
    Ok(match spec {
        GrammarSpec::JsonObject => Some("%json {\"type\": \"object\"}".to_owned()),
        GrammarSpec::JsonSchema(schema) => Some(format!("%json {schema}")),
        GrammarSpec::Lark(text) => Some(nested(text)),
        GrammarSpec::Regex(_) | GrammarSpec::Choice(_) | GrammarSpec::Gbnf(_) => {
            Some(nested(&notation::to_lark(spec, vocabulary)?))
        }
        GrammarSpec::StructuralTag(_) => None,
    })
}

// The engine says what is wrong in words only.
fn explain(error: &anyhow::Error, spec: &GrammarSpec) -> GrammarError {
    let chain: Vec<String> = error.chain().map(|cause| first_line(&cause.to_string())).collect();
    let text = chain.join(": ");
    let says = |part: &str| text.contains(part);
    if says("panic:") {
        return GrammarError::Internal(text);
    }
    if says("Unsatisfiable") || says("unsatisfiable") {
        return GrammarError::Unsatisfiable(text.replace("Unsatisfiable schema: ", ""));
    }
    for (part, keyword) in [
        ("min/maxProperties", "minProperties"),
        ("patternProperty", "patternProperties"),
        ("circular references", "$ref"),
        ("multipleOf", "multipleOf"),
        ("lookarounds", "pattern"),
    ] {
        if says(part) && matches!(spec, GrammarSpec::JsonSchema(_)) {
            return GrammarError::unsupported(keyword, "", text);
        }
    }
    let bounds =
        ["too big", "too large", "too complex", "limit", "fuel", "exceeded", "Unable to determine"];
    if bounds.iter().any(|bound| says(bound)) {
        return GrammarError::TooComplex(text);
    }
    match spec {
        GrammarSpec::JsonObject | GrammarSpec::JsonSchema(_) => GrammarError::malformed("", text),
        GrammarSpec::Regex(_) => GrammarError::syntax("regex", text),
        GrammarSpec::Choice(_) => GrammarError::syntax("choice", text),
        GrammarSpec::Lark(_) => GrammarError::syntax("Lark grammar", text),
        GrammarSpec::Gbnf(_) => GrammarError::syntax("GBNF grammar", text),
        GrammarSpec::StructuralTag(_) => GrammarError::syntax("structural tag", text),
    }
}
