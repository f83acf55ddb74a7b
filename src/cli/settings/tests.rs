//! Which source is the strongest, for every flag that there is; and what errors name.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command, CommandFactory};

use super::kind::{Kind, is_list};
use super::setting::variable_of;
use super::*;
use crate::cli::Cli;

/// A process that doesn't exist: what it was told, and where.
#[derive(Default)]
struct Process {
    typed: Vec<String>,
    environment: BTreeMap<String, String>,
    files: Vec<PathBuf>,
}

impl Process {
    fn read(&self) -> Result<Settings, String> {
        let program = ["sconce", "serve"].map(str::to_owned).into_iter();
        let variable = |name: &str| self.environment.get(name).map(OsString::from);
        let sources = Sources {
            arguments: program.chain(self.typed.clone()).map(OsString::from).collect(),
            variable: &variable,
            files: self.files.clone(),
        };
        Settings::read(&Cli::command(), sources)
    }

    /// The values of a flag, as typed, and where they come from.
    fn value(&self, flag: &Arg) -> (Vec<String>, Option<Origin>) {
        let settings = self.read().unwrap_or_else(|error| panic!("{error}"));
        let matches = Cli::command().try_get_matches_from(settings.arguments());
        let matches = matches.unwrap_or_else(|error| panic!("{error}"));
        let (_, matches) = matches.subcommand().unwrap();
        (raw(matches, flag), settings.origin(matches, flag))
    }
}

fn raw(matches: &ArgMatches, flag: &Arg) -> Vec<String> {
    let values = matches.get_raw(flag.get_id().as_str()).into_iter().flatten();
    values.map(|value| value.to_str().unwrap().to_owned()).collect()
}

fn serve() -> Command {
    let mut command = Cli::command();
    // What parsing does first, so that flags know what they take.
    command.build();
    command.find_subcommand("serve").unwrap().clone()
}

/// A file with a text, gone with the folder.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sconce.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Three different values that the flag takes.
fn samples(flag: &Arg) -> [String; 3] {
    let named: Vec<String> =
        flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let texts = |texts: [&str; 3]| texts.map(str::to_owned);
    if !named.is_empty() {
        // Where there are two names, the first is also the last.
        return [0, 1, 2].map(|i| named[i % named.len()].clone());
    }
    match (flag.get_long().unwrap(), Kind::of(flag)) {
        ("host", _) => texts(["127.0.0.1", "0.0.0.0", "::1"]),
        ("device", _) => texts(["cpu", "cuda:1", "cuda:2"]),
        ("limit-mm-per-prompt", _) => texts(["image=1", "image=2", "{\"image\": 3}"]),
        ("chat-template-kwargs", _) => texts(["{\"a\":1}", "{\"b\":[2]}", "{\"c\":{\"d\":\"e\"}}"]),
        ("kv-events-config", _) => {
            ["a", "b", "c"].map(|topic| format!("{{\"topic\": \"{topic}\"}}"))
        }
        ("lora-modules", _) => texts(["a=./a", "b=./b", "c=./c"]),
        (_, Kind::Float) => texts(["0.25", "0.5", "0.75"]),
        (_, Kind::Integer) => texts(["1", "2", "3"]),
        // Sizes are of this kind, and nothing else that isn't named above.
        (_, Kind::Other) => texts(["1MiB", "2GiB", "3kB"]),
        _ => texts(["one", "two", "three"]),
    }
}

/// What some flags need beside them.
fn beside(flag: &str) -> &'static [&'static str] {
    match flag {
        "revision" | "mmproj" => &["--model=here"],
        "served-speech-model-name" => &["--speech-model=there"],
        "node-rank" | "master-port" => {
            &["--nnodes=2", "--master-addr=there", "--rank-secret-file=secret"]
        }
        "ssl-keyfile" => &["--ssl-certfile=certificate"],
        "kv-disk-size" | "kv-disk-wait" => &["--kv-disk=there"],
        _ => &[],
    }
}

/// The value as a line of TOML; tables are inline.
fn line(flag: &Arg, value: &str) -> String {
    let name = flag.get_long().unwrap();
    let value = match Kind::of(flag) {
        Kind::Switch | Kind::Integer | Kind::Float => value.to_owned(),
        Kind::Text | Kind::Other => toml::Value::from(value).to_string(),
    };
    format!("{name} = {value}\n")
}

#[test]
fn for_every_flag_the_command_line_is_above_the_environment_above_the_file() {
    let command = serve();
    // Each of these needs the others, so none can be left to its default beside them.
    let machines = ["nnodes", "master-addr", "rank-secret-file"];
    let alone = |flag: &&Arg| !machines.iter().any(|name| is_named(flag, name));
    let flags = own_flags(&command).filter(|flag| !is_named(flag, CONFIG)).filter(alone);
    let flags: Vec<&Arg> = flags.collect();
    assert!(flags.len() > 50);
    for flag in flags {
        let name = flag.get_long().unwrap();
        let switch = Kind::of(flag) == Kind::Switch;
        let [low, middle, high] =
            if switch { ["true", "true", "true"].map(str::to_owned) } else { samples(flag) };
        let typed = if switch { format!("--{name}") } else { format!("--{name}={high}") };
        let variable = variable_of(name);
        let mut process = Process {
            typed: beside(name).iter().map(|word| (*word).to_owned()).collect(),
            ..Process::default()
        };
        let (default, origin) = process.value(flag);
        assert!(matches!(origin, None | Some(Origin::Default)), "{name}: {origin:?}");

        let (_folder, path) = file(&format!("# A comment.\n{}", line(flag, &low)));
        process.files = vec![path.clone()];
        let from_file = Origin::File { path, line: 2 };
        assert_eq!(process.value(flag), (vec![low.clone()], Some(from_file)), "{name}");

        process.environment.insert(variable.clone(), middle.clone());
        let from_variable = Some(Origin::Environment(variable.clone()));
        assert_eq!(process.value(flag), (vec![middle], from_variable.clone()), "{name}");
        if switch {
            process.environment.insert(variable.clone(), "false".to_owned());
            assert_eq!(process.value(flag).0, ["false"], "{name}: the file says true");
        }
        process.typed.push(typed);
        assert_eq!(process.value(flag), (vec![high], Some(Origin::Flag)), "{name}");

        // A variable that is set to nothing says nothing.
        process.typed.pop();
        process.files.clear();
        process.environment.insert(variable, String::new());
        assert_eq!(process.value(flag).0, default, "{name}");
    }
}

#[test]
fn lists_and_tables_of_a_file_are_those_of_the_command_line() {
    let command = serve();
    let flag = |name| own_flags(&command).find(|flag| is_named(flag, name)).unwrap();
    let (_folder, path) = file(
        "api-key = ['one', 'two']\nserved-model-name = 'small'\nlora-modules = \
         [{name = 'a', path = './a'}, 'b=./b']\nmax-body-size = 1_000\n\
         chat-template-kwargs = {enable_thinking = false, n = [1, 0x10, 0.5]}\n\
         tensor-parallel-size = 2\nlimit-mm-per-prompt.image = 3\n",
    );
    let process = Process { files: vec![path], ..Process::default() };
    let value = |name| process.value(flag(name)).0;
    assert_eq!(value("api-key"), ["one", "two"]);
    assert_eq!(value("served-model-name"), ["small"]);
    assert_eq!(value("lora-modules"), [r#"{"name":"a","path":"./a"}"#, "b=./b"]);
    assert_eq!(value("max-body-size"), ["1000"]);
    assert_eq!(value("chat-template-kwargs"), [r#"{"enable_thinking":false,"n":[1,16,0.5]}"#]);
    assert_eq!(value("tensor-parallel"), ["2"]);
    assert_eq!(value("limit-mm-per-prompt"), [r#"{"image":3}"#]);
    let mut process = Process::default();
    process.environment.insert("SCONCE_CORS_ORIGIN".to_owned(), "http://a, http://b".to_owned());
    process
        .environment
        .insert("SCONCE_LORA_MODULES".to_owned(), r#"[{"name": "a", "path": "b,c"}]"#.to_owned());
    assert_eq!(process.value(flag("cors-origin")).0, ["http://a", "http://b"]);
    assert_eq!(process.value(flag("lora-modules")).0, [r#"[{"name": "a", "path": "b,c"}]"#]);
}

#[test]
fn a_wrong_file_is_refused_by_line_and_key() {
    for (text, line, expected) in [
        ("\nport = 'x'", 2, "`port`: it must be an integer, not a string"),
        ("port = 70000", 1, "`port`: invalid value '70000' for '--port <PORT>': 70000 is not in"),
        ("port = true", 1, "`port`: it must be an integer, not true or false"),
        ("a = 1\nport = 1", 1, "`a`: `sconce serve` has no such flag"),
        ("max_num_seqs = 1", 1, "no such flag; it is written `max-num-seqs`"),
        ("port = 1\nport = 2", 2, "duplicate key"),
        ("strict = 'yes'", 1, "`strict`: it must be true or false, not a string"),
        ("strict = 1", 1, "`strict`: it must be true or false, not an integer"),
        ("model = 7", 1, "`model`: it must be a string, not an integer"),
        ("model = ['a']", 1, "`model`: it must be a string, not an array"),
        ("api-key = [1]", 1, "`api-key`: it must be a string, not an integer"),
        ("host = 8000", 1, "`host`: invalid value '8000'"),
        ("kv-cache-dtype = 'f7'", 1, "[possible values: auto, f32"),
        ("max-body-size = '1 parsec'", 1, "`max-body-size`: invalid value"),
        ("gpu-memory-utilization = 1.5", 1, "is no number from 0.01 to 1"),
        ("[serve]\nport = 1", 1, "`serve`: `sconce serve` has no such flag"),
        ("config = 'other.toml'", 1, "`config`: a file can't name another file"),
        ("help = true", 1, "`help`: `sconce serve` has no such flag"),
        ("tensor-parallel = 1\n\ntensor-parallel-size = 2", 3, "is the same as the key of"),
        ("port = ", 1, ""),
    ] {
        let (_folder, path) = file(text);
        let error = Process { files: vec![path.clone()], ..Process::default() }.read().unwrap_err();
        let place = format!("{}, line {line}: ", path.display());
        assert!(error.starts_with(&place) && error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn a_wrong_variable_is_refused_by_name() {
    for (name, value, expected) in [
        ("SCONCE_PORT", "http", "invalid value 'http' for '--port <PORT>'"),
        ("SCONCE_STRICT", "maybe", "`maybe` is not true or false"),
        ("SCONCE_QUANTIZE", "q9", "[possible values: q8_0"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "perhaps", "is not true or false"),
    ] {
        let environment = [(name.to_owned(), value.to_owned())].into();
        let error = Process { environment, ..Process::default() }.read().unwrap_err();
        let place = format!("environment variable {name}: ");
        assert!(error.starts_with(&place) && error.contains(expected), "{error}");
    }
}

/// In a cluster with a Service called `sconce` every pod has this variable.
#[test]
fn the_address_of_a_kubernetes_service_is_no_port() {
    let command = serve();
    let port = own_flags(&command).find(|flag| is_named(flag, "port")).unwrap();
    let link = [("SCONCE_PORT".to_owned(), "tcp://10.0.171.239:80".to_owned())].into();
    let process = Process { environment: link, ..Process::default() };
    assert_eq!(process.value(port), (vec!["8000".to_owned()], Some(Origin::Default)));
}

#[test]
fn a_file_is_named_or_found_and_must_be_there_once_it_is_named() {
    let command = serve();
    let flag = |name| own_flags(&command).find(|flag| is_named(flag, name)).unwrap();
    let (_first, near) = file("port = 1");
    let (_second, far) = file("port = 2");
    let absent = PathBuf::from("/nowhere/sconce.toml");
    let mut process =
        Process { files: vec![absent.clone(), near.clone(), far.clone()], ..Process::default() };
    assert_eq!(process.value(flag("port")).0, ["1"]);
    let found = (vec![near.to_str().unwrap().to_owned()], Some(Origin::Found));
    assert_eq!(process.value(flag("config")), found);
    process.environment.insert("SCONCE_CONFIG".to_owned(), far.to_str().unwrap().to_owned());
    assert_eq!(process.value(flag("port")).0, ["2"]);
    process.typed = vec!["--config".to_owned(), near.to_str().unwrap().to_owned()];
    assert_eq!(process.value(flag("port")).0, ["1"]);
    process.typed = vec!["--config=/nowhere/sconce.toml".to_owned()];
    let error = process.read().unwrap_err();
    assert!(error.starts_with("--config /nowhere/sconce.toml: it can't be read"), "{error}");
}

#[test]
fn an_error_between_flags_says_where_they_are_from() {
    let (_folder, path) = file("no-prefix-cache = true");
    let process = Process {
        typed: vec!["--kv-disk=here".to_owned()],
        files: vec![path.clone()],
        ..Process::default()
    };
    let settings = process.read().unwrap();
    let error = Cli::command().try_get_matches_from(settings.arguments()).unwrap_err();
    let notes = settings.notes(&error.to_string());
    assert_eq!(notes, format!("note: --no-prefix-cache is from {}, line 1\n", path.display()));
}

#[test]
fn other_subcommands_and_wrong_lines_stay_as_they_are() {
    let environment: BTreeMap<_, _> = [("SCONCE_PORT".to_owned(), "x".to_owned())].into();
    for words in [&["sconce", "health"][..], &["sconce"], &["sconce", "--help"], &["sconce", "no"]]
    {
        let sources = Sources {
            arguments: words.iter().map(OsString::from).collect(),
            variable: &|name| environment.get(name).map(OsString::from),
            files: Vec::new(),
        };
        let settings = Settings::read(&Cli::command(), sources).unwrap();
        assert_eq!(settings.arguments(), words);
    }
}

/// What [`Kind`] tells apart by type is what flags really have.
#[test]
fn kinds_are_those_of_the_parsers() {
    let kind = |flag: Arg| Kind::of(&flag);
    let arg = || Arg::new("a").long("a");
    assert_eq!(kind(arg().action(clap::ArgAction::SetTrue)), Kind::Switch);
    assert_eq!(kind(arg().value_parser(clap::value_parser!(u16).range(1..))), Kind::Integer);
    assert_eq!(kind(arg().value_parser(clap::value_parser!(f64))), Kind::Float);
    assert_eq!(kind(arg().value_parser(ValueParser::path_buf())), Kind::Text);
    assert_eq!(kind(arg().value_parser(clap::value_parser!(std::net::IpAddr))), Kind::Other);
    assert!(is_list(&arg().action(clap::ArgAction::Append)) && !is_list(&arg()));
}
