//! `sconce cache`: what servers have stored in a folder of `--kv-disk`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use chrono::{DateTime, Local, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::cli::table;
use crate::engine::memory::Size;
use crate::kv_disk::inventory::{self, Holding};
use crate::kv_disk::namespace::Namespace;

/// List, empty or check a folder of --kv-disk. Servers that use it may run meanwhile.
#[derive(Clone, Debug, clap::Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum CacheCommand {
    /// List what is stored, by model and the way in which it was computed.
    Ls {
        /// The folder.
        #[arg(value_name = "FOLDER")]
        path: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove what is stored. Files that no server has written stay.
    Rm {
        /// The folder.
        #[arg(value_name = "FOLDER")]
        path: PathBuf,
        /// Names that `ls` tells, or beginnings of them.
        #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// Remove everything.
        #[arg(long)]
        all: bool,
    },
    /// Read every file and check it; exit status 1 means that some are not what they say.
    Verify {
        /// The folder.
        #[arg(value_name = "FOLDER")]
        path: PathBuf,
    },
}

/// Does what the subcommand says.
///
/// # Errors
/// The folder can't be read or changed, a name is that of nothing, or files are bad.
pub fn run(args: &CacheArgs) -> anyhow::Result<()> {
    match &args.command {
        CacheCommand::Ls { path, json } => list(path, *json),
        CacheCommand::Rm { path, names, all } => remove(path, names, *all),
        CacheCommand::Verify { path } => verify(path),
    }
}

fn holdings(path: &Path) -> anyhow::Result<Vec<Holding>> {
    inventory::list(path).with_context(|| format!("can't list {}", path.display()))
}

fn list(path: &Path, as_json: bool) -> anyhow::Result<()> {
    let holdings = holdings(path)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        let all: Vec<Value> = holdings.iter().map(to_json).collect();
        writeln!(out, "{}", Value::from(all))?;
        return Ok(());
    }
    if holdings.is_empty() {
        writeln!(out, "nothing is stored in {}", path.display())?;
        return Ok(());
    }
    let heads =
        ["NAME", "MODEL", "KV CACHE", "COMPUTED ON", "BLOCKS", "STATES", "SIZE", "LAST USED"];
    Ok(table::write(&mut out, heads, holdings.iter().map(row))?)
}

fn row(holding: &Holding) -> [String; 8] {
    let unknown = || ["?", "?", "?"].map(str::to_owned);
    let [model, dtype, computed_on] = holding.about.as_ref().map_or_else(unknown, |about| {
        [&about.model, &about.kv_cache_dtype, &about.computed_on].map(Clone::clone)
    });
    let used = holding.used.map(DateTime::<Local>::from);
    [
        holding.namespace.to_string(),
        model,
        dtype,
        computed_on,
        holding.blocks.to_string(),
        holding.snapshots.to_string(),
        Size(usize::try_from(holding.bytes).unwrap_or(usize::MAX)).to_string(),
        used.map_or(String::new(), |used| used.format("%Y-%m-%d %H:%M").to_string()),
    ]
}

fn to_json(holding: &Holding) -> Value {
    let rfc3339 =
        |time: SystemTime| DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Secs, true);
    json!({
        "name": holding.namespace.to_string(),
        "about": holding.about,
        "blocks": holding.blocks,
        "states": holding.snapshots,
        "bytes": holding.bytes,
        "last_used": holding.used.map(rfc3339),
    })
}

fn remove(path: &Path, names: &[String], all: bool) -> anyhow::Result<()> {
    let known: Vec<Namespace> = holdings(path)?.iter().map(|holding| holding.namespace).collect();
    let chosen = if all { known } else { named(names, &known)? };
    let (files, bytes) = inventory::remove(path, &chosen)
        .with_context(|| format!("can't remove all of {}", path.display()))?;
    let size = Size(usize::try_from(bytes).unwrap_or(usize::MAX));
    writeln!(std::io::stdout(), "removed {files} files, {size}")?;
    Ok(())
}

/// The namespaces that begin so.
fn named(names: &[String], known: &[Namespace]) -> anyhow::Result<Vec<Namespace>> {
    let mut chosen = Vec::new();
    for name in names {
        let begins = |namespace: &&Namespace| namespace.to_string().starts_with(name.as_str());
        let found: Vec<&Namespace> = known.iter().filter(begins).collect();
        match found[..] {
            [one] if !name.is_empty() => chosen.push(*one),
            [] => bail!("nothing stored is named {name:?}"),
            _ => bail!("{name:?} is the beginning of {} names", found.len()),
        }
    }
    Ok(chosen)
}

fn verify(path: &Path) -> anyhow::Result<()> {
    let verified =
        inventory::verify(path).with_context(|| format!("can't read {}", path.display()))?;
    let mut out = std::io::stdout().lock();
    for (path, reason) in &verified.bad {
        writeln!(out, "{path}: {reason}")?;
    }
    for name in &verified.foreign {
        writeln!(out, "{name}: not written by a server")?;
    }
    let (good, bad) = (verified.good, verified.bad.len());
    let unfinished = match verified.temporary {
        0 => String::new(),
        count => format!(", {count} unfinished"),
    };
    writeln!(out, "{good} files are good, {bad} are not{unfinished}")?;
    if bad > 0 {
        bail!("{bad} files are not what they say; servers take them for missing and remove them");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_cut_as_long_as_they_are_clear() {
        let known = [[0x11; 16], [0x12; 16], [0x22; 16]].map(Namespace::from_bytes);
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            named(&names, &known).map_err(|error| error.to_string())
        };
        assert_eq!(named(&["11", "2"]), Ok(vec![known[0], known[2]]));
        assert_eq!(named(&["1"]), Err("\"1\" is the beginning of 2 names".to_owned()));
        assert_eq!(named(&["33"]), Err("nothing stored is named \"33\"".to_owned()));
        assert!(named(&[""]).is_err());
    }
}
