//! `sconce serve --models`: several models behind one address, each in a process of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Command, FromArgMatches};
use serde_json::Value;

use super::args::ServeArgs;
use super::listen::{Addresses, announce};
use super::models_args::{HUB, ModelsArgs, OWN, is_own};
use super::models_file;
use super::signals::first_stop_signal;
use crate::app::plan::ModelPlan;
use crate::cli::settings::{Given, GivenFlag, own_flags, variable_of};
use crate::config::EngineConfig;
use crate::engine::startup::device::OpenDevice;
use crate::engine::startup::forecast::{Forecast, memory_for_models};
use crate::fleet::{
    Catalog, Fleet, KeeperSettings, Launch, ModelFacts, ModelSpec, Origin, catalog,
};
use crate::http::Loading;
use crate::kv_cache::BLOCK_SIZE;
use crate::weights::hub::HubOptions;

/// An empty file of settings in the place of any that would be found.
const NO_FILE: &str = if cfg!(windows) { "--config=NUL" } else { "--config=/dev/null" };
/// The context of which a model without `--kv-cache-memory` can hold a few.
const USUAL_CONTEXT: usize = 8192;
const USUAL_CONTEXTS: usize = 4;

/// Serves until SIGTERM or Ctrl-C, then all processes drain.
pub(super) async fn run(args: ServeArgs, given: Given) -> anyhow::Result<()> {
    let began = Instant::now();
    let config = args.server_config("");
    let addresses = Addresses::bind(&config)?;
    let most = config.max_connections;
    let loading = addresses.each()?.into_iter().map(|listener| Loading::start(listener, most));
    let loading: Vec<Loading> = loading.collect();
    let flags = Flags::new(given);
    let engine_config = args.engine_config();
    let device = OpenDevice::open(engine_config.device, 0, 1)?;
    let asked = args.models.models_memory.map(|size| size.0);
    let memory = match asked {
        Some(bytes) => bytes,
        None => memory_for_models(&engine_config, &device)?,
    };
    let settings = keeper_settings(&args, &flags, memory)?;
    let single = args.models.sleep_idle_seconds.is_some();
    let hub = lists_hub(&args.models, &flags.command)?.then(HubOptions::from_env);
    let reader = Reader { args: args.clone(), flags, device, memory };
    let catalog = Catalog { read: Arc::new(move || reader.read()), hub };
    let fleet = Fleet::new(config, settings, catalog, single).await?;
    if single {
        // A model that can't be loaded ends the server, as it does without sleep.
        fleet.load_at_start().await?;
    }
    let listeners = addresses.listeners()?;
    for loading in loading {
        loading.end().await;
    }
    addresses.keep_certificate_new();
    announce(&addresses.names()?, began.elapsed())?;
    fleet.serve(listeners, first_stop_signal()).await;
    Ok(())
}

fn keeper_settings(
    args: &ServeArgs,
    flags: &Flags,
    memory: usize,
) -> anyhow::Result<KeeperSettings> {
    let models = &args.models;
    let config = args.server_config("");
    let keys = |keys: &[String], variable: &str| {
        (!keys.is_empty()).then(|| (variable.to_owned(), keys.join(",")))
    };
    // Nobody else knows this one.
    let key = config.needs_keys().then(|| uuid::Uuid::new_v4().simple().to_string());
    let admins: Vec<String> = config.admin_api_keys.iter().cloned().chain(key.clone()).collect();
    let variables =
        [keys(&config.api_keys, "SCONCE_API_KEY"), keys(&admins, "SCONCE_ADMIN_API_KEY")];
    Ok(KeeperSettings {
        launch: Launch {
            program: std::env::current_exe()?,
            arguments: flags.for_models(),
            without_variables: flags.variables.clone(),
            variables: variables.into_iter().flatten().collect(),
            key,
            json_log: args.output.is_json(),
        },
        memory: memory as u64,
        most_models: models.models_max,
        minimum: Duration::from_secs(models.models_min_residency),
        load_timeout: Duration::from_secs(models.models_load_timeout),
        drain_timeout: config.drain_timeout,
        autoload: !models.no_models_autoload,
    })
}

/// Whether models of the hub's cache are served.
fn lists_hub(args: &ModelsArgs, command: &Command) -> anyhow::Result<bool> {
    if args.models.iter().any(|place| place == HUB) {
        return Ok(true);
    }
    for place in args.models.iter().filter(|place| Path::new(place).is_file()) {
        if models_file::read(Path::new(place), command, None)?.hub {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The flags of this command line.
#[derive(Clone)]
struct Flags {
    command: Command,
    given: Vec<GivenFlag>,
    /// Variables that stand for flags.
    variables: Vec<String>,
}

impl Flags {
    fn new(given: Given) -> Self {
        let Given { command, flags: given } = given;
        let flags = command.find_subcommand("serve").into_iter().flat_map(own_flags);
        let variables = flags.filter_map(|flag| flag.get_long()).map(variable_of).collect();
        Self { command, given, variables }
    }

    /// Those that all models' processes take.
    fn for_models(&self) -> Vec<OsString> {
        let passed = self.given.iter().filter(|flag| !is_own(&flag.name));
        let words = passed.flat_map(|flag| flag.words.iter().map(OsString::from));
        // All settings are among the flags already.
        words.chain([OsString::from(NO_FILE), "--drain-delay=0".into()]).collect()
    }
}

/// Reads what models there are, and plans each.
struct Reader {
    args: ServeArgs,
    flags: Flags,
    device: OpenDevice,
    memory: usize,
}

impl Reader {
    fn read(&self) -> anyhow::Result<Vec<ModelSpec>> {
        let command = self.flags.command.clone();
        let mut specs = match self.args.models.sleep_idle_seconds {
            Some(seconds) => vec![self.only(Duration::from_secs(seconds))],
            None => self.listed(&command)?,
        };
        let mut known: Vec<String> = Vec::new();
        // The first of a name has it.
        specs.retain(|spec| {
            let new = !known.contains(&spec.name);
            known.push(spec.name.clone());
            new
        });
        for spec in &mut specs {
            self.plan(spec, &command);
        }
        Ok(specs)
    }

    /// The model of a server that has only one.
    fn only(&self, idle: Duration) -> ModelSpec {
        let choice = self.args.model_choice();
        let mut names = self.args.server_config("").served_model_names;
        names.retain(|name| !name.is_empty());
        let name = names.first().cloned().or_else(|| {
            // As it would be called by itself.
            let config = self.args.engine_config();
            ModelPlan::new(&choice, &config, &self.device).ok().map(|plan| plan.name)
        });
        let model = choice.model.clone().unwrap_or_default();
        let name = name.unwrap_or_else(|| model.clone());
        ModelSpec {
            aliases: names.into_iter().skip(1).collect(),
            ttl: Some(idle),
            ..catalog::plain(name, model, Origin::Listed)
        }
    }

    fn listed(&self, command: &Command) -> anyhow::Result<Vec<ModelSpec>> {
        let ttl = self.args.models.models_ttl;
        let ttl = (ttl > 0).then(|| Duration::from_secs(ttl));
        let (mut specs, mut folders, mut hub) = (Vec::new(), Vec::new(), false);
        for place in &self.args.models.models {
            let path = PathBuf::from(place);
            if place == HUB {
                hub = true;
            } else if path.is_file() {
                let listed = models_file::read(&path, command, ttl)?;
                specs.extend(listed.models);
                folders.extend(listed.folders);
                hub |= listed.hub;
            } else {
                folders.push(path);
            }
        }
        for folder in folders {
            specs.extend(with_ttl(catalog::in_folder(&folder)?, ttl));
        }
        if hub {
            specs.extend(with_ttl(catalog::in_hub_cache(&HubOptions::from_env()), ttl));
        }
        Ok(specs)
    }

    /// Finds out what a model takes, and bounds its KV cache where no flag does.
    fn plan(&self, spec: &mut ModelSpec, command: &Command) {
        match self.planned(spec, command) {
            Ok(facts) => spec.facts = facts,
            Err(error) => spec.facts.fault = Some(format!("{error:#}")),
        }
    }

    fn planned(&self, spec: &mut ModelSpec, command: &Command) -> anyhow::Result<ModelFacts> {
        let args = self.arguments_of(spec, command)?;
        let mut config = args.engine_config();
        let mut choice = args.model_choice();
        choice.offline |= spec.origin == Origin::Hub;
        let plan = ModelPlan::new(&choice, &config, &self.device)?;
        let kv = usual_kv_bytes(&plan.forecast, &config, self.memory);
        let bounded = config.kv_cache_bytes.is_some();
        if let Some(bytes) = kv.filter(|_| !bounded && spec.facts == ModelFacts::default()) {
            config.kv_cache_bytes = Some(bytes);
            spec.arguments.push(format!("--kv-cache-memory={bytes}"));
        }
        let memory = plan.forecast.plan(&config)?;
        let need = plan.forecast.process_bytes(memory.as_ref());
        let source = &plan.source;
        let text = |name: &str| source.config.get(name).and_then(Value::as_str);
        Ok(ModelFacts {
            need: need as u64,
            bytes: source.weight_bytes(),
            architecture: text("model_type").unwrap_or_default().to_owned(),
            format: if source.gguf_vocabulary.is_some() { "gguf" } else { "safetensors" },
            stored_as: plan.forecast.main_kind().to_uppercase(),
            context: plan.forecast.context,
            template: source.chat_template.clone(),
            config: source.config.clone(),
            fault: None,
        })
    }

    /// The flags that the process of a model will have.
    fn arguments_of(&self, spec: &ModelSpec, command: &Command) -> anyhow::Result<ServeArgs> {
        let passed = self.flags.given.iter().filter(|flag| !OWN.contains(&flag.name.as_str()));
        let words = ["sconce", "serve"].into_iter().map(str::to_owned);
        let words = words.chain(passed.flat_map(|flag| flag.words.iter().cloned()));
        let words = words.chain(spec.arguments.iter().cloned());
        let model = (!spec.model.is_empty()).then(|| format!("--model={}", spec.model));
        let matches = command.clone().try_get_matches_from(words.chain(model))?;
        let (_, matches) = matches.subcommand().expect("the words have a subcommand");
        Ok(ServeArgs::from_arg_matches(matches)?)
    }
}

fn with_ttl(specs: Vec<ModelSpec>, ttl: Option<Duration>) -> impl Iterator<Item = ModelSpec> {
    specs.into_iter().map(move |spec| ModelSpec { ttl, ..spec })
}

/// Bytes of KV cache for a model that shares memory with others: a few usual contexts, or one of the length
/// that is asked for; of all memory at most a quarter, but enough for a short text.
fn usual_kv_bytes(forecast: &Forecast, config: &EngineConfig, memory: usize) -> Option<usize> {
    let facts = forecast.facts?;
    let length = facts.model_context.min(USUAL_CONTEXT);
    let length = config.max_model_len.unwrap_or(length);
    let of = |tokens: usize| tokens.div_ceil(BLOCK_SIZE) * facts.block_bytes;
    let states = facts.state_bytes * 2 * config.max_num_seqs.min(8);
    let least = of(config.max_model_len.unwrap_or(length.min(2048))) + 2 * states;
    Some((of(USUAL_CONTEXTS * length) + 2 * states).min(memory / 4).max(least))
}
