//! What the user typed -> what to do. Pure text; knows nothing of terminals or servers.

use std::path::PathBuf;

/// Every command with its help, in the order in which help shows them.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("/help", "show this list"),
    ("/clear", "forget the conversation, keep the system prompt"),
    ("/system [TEXT]", "show or replace the system prompt; /system - removes it"),
    ("/retry", "ask the last question again"),
    ("/set [NAME VALUE]", "show or set temperature, top_p, max_tokens, seed, ...; - unsets"),
    ("/set think", "let the model think; /set nothink does not"),
    ("/set verbose", "tell counts and speed after answers; /set quiet tells nothing"),
    ("/save FILE", "write the conversation to a new JSON file"),
    ("/load FILE", "go on with a conversation that was saved"),
    ("/exit", "leave (Ctrl-D and a second Ctrl-C do too)"),
];

/// What is told after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Only that it is not whole.
    Quiet,
    /// How fast it came, too.
    Brief,
    /// Everything that is known.
    Full,
}

/// One entry at the prompt, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Nothing,
    Message(String),
    Help,
    Clear,
    ShowSystem,
    /// `None` removes the system prompt.
    SetSystem(Option<String>),
    Retry,
    ShowSettings,
    /// A field of requests, and what was typed for it.
    Set(String, String),
    Think(bool),
    Tell(Detail),
    Save(PathBuf),
    Load(PathBuf),
    Exit,
    /// Not understood; the text says why.
    Mistake(String),
}

impl Entry {
    /// Understands a complete entry (see [`is_complete`]).
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Nothing;
        }
        // A path or a comment (`/usr/bin`, `// x`) and a pasted text are messages.
        let first_word = text.split_whitespace().next().unwrap_or("");
        let is_command = first_word.starts_with('/') && !first_word[1..].contains('/');
        if !is_command || first_word.len() == 1 {
            return Self::Message(unwrap_multiline(text));
        }
        parse_command(first_word, text[first_word.len()..].trim())
    }
}

fn parse_command(name: &str, argument: &str) -> Entry {
    match (name, argument) {
        ("/help" | "/?", "") => Entry::Help,
        ("/clear", "") => Entry::Clear,
        ("/exit" | "/quit" | "/bye", "") => Entry::Exit,
        ("/retry", "") => Entry::Retry,
        ("/system", "") => Entry::ShowSystem,
        ("/system", "-") => Entry::SetSystem(None),
        ("/system", text) => Entry::SetSystem(Some(unwrap_multiline(text))),
        ("/set", what) => parse_set(what),
        ("/save" | "/load", "") => Entry::Mistake(format!("{name} needs the name of a file")),
        ("/save", path) => Entry::Save(PathBuf::from(path)),
        ("/load", path) => Entry::Load(PathBuf::from(path)),
        ("/help" | "/?" | "/clear" | "/exit" | "/quit" | "/bye" | "/retry", _) => {
            Entry::Mistake(format!("{name} takes nothing after it"))
        }
        _ => Entry::Mistake(format!("no command {name}; /help lists them")),
    }
}

/// What follows `/set`; Ollama has `parameter` and `system` there.
fn parse_set(what: &str) -> Entry {
    let (name, value) = what.split_once(char::is_whitespace).unwrap_or((what, ""));
    let value = value.trim();
    match (name, value) {
        ("", _) => Entry::ShowSettings,
        ("think", "") => Entry::Think(true),
        ("nothink", "") => Entry::Think(false),
        ("verbose", "") => Entry::Tell(Detail::Full),
        ("quiet", "") => Entry::Tell(Detail::Quiet),
        ("system", _) => parse_command("/system", value),
        ("parameter", _) => parse_set(value),
        (name, "") => Entry::Mistake(format!("/set {name} needs a value; - unsets it")),
        (name, value) => Entry::Set(name.to_owned(), value.to_owned()),
    }
}

/// False while more lines belong to the entry: inside `"""` or after a line that ends in `\`.
pub(super) fn is_complete(text: &str) -> bool {
    let text = text.trim_end_matches([' ', '\t', '\n', '\r']);
    if let Some(block) = quoted_part(text) {
        return block.ends_with("\"\"\"");
    }
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes.is_multiple_of(2)
}

/// What follows an opening `"""`, at the start of the entry or after `/system`.
fn quoted_part(text: &str) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix("/system").unwrap_or(text).trim_start().strip_prefix("\"\"\"")
}

/// Takes the marks of multi-line input off: the `"""` around a block, the `\` before a line end.
fn unwrap_multiline(text: &str) -> String {
    if let Some(block) = text.strip_prefix("\"\"\"") {
        return block.strip_suffix("\"\"\"").unwrap_or(block).trim_matches('\n').to_owned();
    }
    text.replace("\\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_every_command_of_the_list() {
        for (usage, _) in COMMANDS {
            let example = usage.replace("[TEXT]", "be kind").replace("FILE", "talk.json");
            let example = example.replace("[NAME VALUE]", "seed 5");
            let entry = Entry::parse(&example);
            assert!(!matches!(entry, Entry::Mistake(_) | Entry::Message(_)), "{usage}: {entry:?}");
        }
    }

    #[test]
    fn takes_arguments_apart() {
        let set = |text: &str| Entry::SetSystem(Some(text.to_owned()));
        assert_eq!(Entry::parse("/system  be kind "), set("be kind"));
        assert_eq!(Entry::parse("/system \"\"\"\na\n\nb\n\"\"\""), set("a\n\nb"));
        assert_eq!(Entry::parse("/system -"), Entry::SetSystem(None));
        assert_eq!(Entry::parse("/system"), Entry::ShowSystem);
        assert_eq!(Entry::parse("/save a b.json"), Entry::Save("a b.json".into()));
        assert_eq!(Entry::parse("/load a.json"), Entry::Load("a.json".into()));
        assert!(matches!(Entry::parse("/clear now"), Entry::Mistake(_)));
        assert!(matches!(Entry::parse("/sytem x"), Entry::Mistake(_)));
        assert!(matches!(Entry::parse("/save"), Entry::Mistake(_)));
    }

    #[test]
    fn settings_are_read_as_ollama_has_them_too() {
        let set = |name: &str, value: &str| Entry::Set(name.to_owned(), value.to_owned());
        assert_eq!(Entry::parse("/set"), Entry::ShowSettings);
        assert_eq!(Entry::parse("/set temperature 0.5"), set("temperature", "0.5"));
        assert_eq!(Entry::parse("/set parameter num_predict 20"), set("num_predict", "20"));
        assert_eq!(Entry::parse("/set stop  the end"), set("stop", "the end"));
        assert_eq!(Entry::parse("/set system be kind"), Entry::parse("/system be kind"));
        assert_eq!(Entry::parse("/set nothink"), Entry::Think(false));
        assert_eq!(Entry::parse("/set verbose"), Entry::Tell(Detail::Full));
        assert!(matches!(Entry::parse("/set temperature"), Entry::Mistake(_)));
    }

    #[test]
    fn everything_else_is_a_message() {
        let message = |text: &str| Entry::Message(text.to_owned());
        assert_eq!(Entry::parse("  hello\nthere "), message("hello\nthere"));
        assert_eq!(Entry::parse("/usr/bin is a folder"), message("/usr/bin is a folder"));
        assert_eq!(Entry::parse("// note"), message("// note"));
        assert_eq!(Entry::parse("/"), message("/"));
        assert_eq!(Entry::parse(" \n"), Entry::Nothing);
    }

    #[test]
    fn waits_for_the_rest_of_a_multi_line_entry() {
        assert!(is_complete("one line"));
        assert!(!is_complete("one \\"));
        assert!(is_complete("ends in a backslash \\\\"));
        assert!(!is_complete("\"\"\"a\nb"));
        assert!(!is_complete("\"\"\""));
        assert!(is_complete("\"\"\"a\nb\"\"\""));
        assert!(!is_complete("/system \"\"\"a"));
        assert!(is_complete("a \"\"\" in the middle"));
    }

    #[test]
    fn marks_of_multi_line_input_are_not_sent() {
        assert_eq!(Entry::parse("a \\\nb"), Entry::Message("a \nb".to_owned()));
        assert_eq!(Entry::parse("\"\"\"\na\nb\n\"\"\""), Entry::Message("a\nb".to_owned()));
    }
}
