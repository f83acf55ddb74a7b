//! `sconce key`: entries for the file of `--api-key-file`.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Subcommand;
use toml::Table;

use crate::http::state::keys::file::{check_name, digest, hex, parse};

/// Make keys for the file of `sconce serve --api-key-file`.
#[derive(Clone, Debug, clap::Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum KeyCommand {
    /// Make a key: its entry goes to standard output (sconce key new NAME >> keys.toml), the key itself, which
    /// nobody can get back from the entry, to standard error.
    New(NewArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct NewArgs {
    /// What metrics, usage and the log call it.
    #[arg(value_parser = name)]
    name: String,
    /// What it opens: infer, embeddings, batches, metrics or admin; repeat for more [default: the first three].
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Requests a minute.
    #[arg(long, value_name = "COUNT")]
    requests_per_minute: Option<i64>,
    /// Tokens a minute, of prompts and answers together.
    #[arg(long, value_name = "COUNT")]
    tokens_per_minute: Option<i64>,
    /// Requests at once.
    #[arg(long, value_name = "COUNT")]
    max_concurrent: Option<i64>,
    /// A model or an adapter that it may name; repeat for more [default: all].
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// When it opens nothing any more, as a date or a time with its zone.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

/// Does what the arguments ask for.
///
/// # Errors
/// When a value is out of its bounds, or standard output is closed.
pub fn run(args: KeyArgs) -> anyhow::Result<()> {
    let KeyCommand::New(args) = args.command;
    let random: [u8; 32] = rand::random();
    let key = format!("sk-{}", URL_SAFE_NO_PAD.encode(random));
    let entry = entry(args, &key)?;
    let mut out = std::io::stdout();
    out.write_all(entry.as_bytes())?;
    out.flush()?;
    writeln!(std::io::stderr(), "{key}")?;
    Ok(())
}

/// The entry of a key, as the server will read it.
fn entry(args: NewArgs, key: &str) -> anyhow::Result<String> {
    let mut table = Table::new();
    let NewArgs { name, scopes, models, expires, .. } = args;
    table.insert("name".to_owned(), name.into());
    table.insert("sha256".to_owned(), hex(&digest(key.as_bytes())).into());
    for (what, list) in [("scopes", scopes), ("models", models)] {
        if !list.is_empty() {
            table.insert(what.to_owned(), list.into());
        }
    }
    for (what, count) in [
        ("requests_per_minute", args.requests_per_minute),
        ("tokens_per_minute", args.tokens_per_minute),
        ("max_concurrent", args.max_concurrent),
    ] {
        if let Some(count) = count {
            table.insert(what.to_owned(), count.into());
        }
    }
    if let Some(expires) = expires {
        table.insert("expires".to_owned(), expires.into());
    }
    let text = format!("[[keys]]\n{}\n", toml::to_string(&table)?);
    parse(&text).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(scopes: &[&str]) -> NewArgs {
        NewArgs {
            name: "a".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            requests_per_minute: Some(5),
            tokens_per_minute: None,
            max_concurrent: Some(2),
            models: vec!["m \"x\"".to_owned()],
            expires: Some("2030-01-01".to_owned()),
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_asked_for() {
        let keys = parse(&entry(args(&["infer"]), "sk-1").unwrap()).unwrap();
        assert_eq!((keys.len(), keys[0].digests[0]), (1, digest(b"sk-1")));
        assert_eq!(keys[0].limits.requests_per_minute, Some(5));
        assert_eq!(keys[0].models.as_deref(), Some(&["m \"x\"".to_owned()][..]));
        assert!(entry(args(&["everything"]), "sk-1").is_err());
    }
}
