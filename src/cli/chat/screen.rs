//! Prints answers as they come. A terminal gets colours and no control characters of the model's; a
//! pipe gets the bytes of the answer and nothing else.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Where answers go.
pub(super) struct Screen<W> {
    out: W,
    is_terminal: bool,
    is_dim: bool,
    ends_line: bool,
    /// Turns until something is written.
    spinner: Option<ProgressBar>,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, is_terminal: bool) -> Self {
        Self { out, is_terminal, is_dim: false, ends_line: true, spinner: None }
    }

    #[cfg(test)]
    pub(super) fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Shows on a terminal what is waited for, and how long already, until something is written.
    pub(super) fn wait(&mut self, what: &'static str) {
        if !self.is_terminal {
            return;
        }
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        let style = style.expect("the template above is valid");
        let spinner = ProgressBar::new_spinner().with_style(style).with_message(what);
        spinner.enable_steady_tick(Duration::from_millis(100));
        self.spinner = Some(spinner);
    }

    fn end_wait(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Text of the answer itself.
    pub(super) fn answer(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.is_dim {
            self.end_reasoning()?;
        }
        self.write(text)
    }

    /// Text of the reasoning before it: shown dim on a terminal, left out of a pipe.
    pub(super) fn reasoning(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() || !self.is_terminal {
            return Ok(());
        }
        self.end_wait();
        if !std::mem::replace(&mut self.is_dim, true) {
            self.out.write_all(DIM.as_bytes())?;
        }
        self.write(text)
    }

    /// A line about the conversation, not part of it.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        self.end_answer()?;
        let text = printable(text);
        if self.is_terminal {
            writeln!(self.out, "{DIM}{text}{PLAIN}")?;
        } else {
            writeln!(self.out, "{text}")?;
        }
        self.out.flush()
    }

    /// The answer is over: the next output starts on a line of its own.
    pub(super) fn end_answer(&mut self) -> io::Result<()> {
        self.end_wait();
        if std::mem::take(&mut self.is_dim) {
            self.out.write_all(PLAIN.as_bytes())?;
        }
        if !std::mem::replace(&mut self.ends_line, true) {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    fn end_reasoning(&mut self) -> io::Result<()> {
        self.end_answer()?;
        self.out.write_all(b"\n")
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.end_wait();
        self.ends_line = text.ends_with('\n');
        if self.is_terminal {
            self.out.write_all(printable(text).as_bytes())?;
        } else {
            self.out.write_all(text.as_bytes())?;
        }
        self.out.flush()
    }
}

/// Control characters could move the cursor, change the title or fill the clipboard.
fn printable(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(is_terminal: bool, write: impl Fn(&mut Screen<&mut Vec<u8>>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Screen::new(&mut bytes, is_terminal));
        String::from_utf8(bytes).unwrap()
    }

    fn reason_then_answer(screen: &mut Screen<&mut Vec<u8>>) {
        screen.reasoning("hm").unwrap();
        screen.answer("yes\x1b]0;evil\x07").unwrap();
        screen.end_answer().unwrap();
        screen.end_answer().unwrap();
    }

    #[test]
    fn a_terminal_gets_dim_reasoning_and_no_control_characters() {
        let text = shown(true, reason_then_answer);
        assert_eq!(text, "\x1b[2mhm\x1b[0m\n\nyes\u{fffd}]0;evil\u{fffd}\n");
    }

    #[test]
    fn a_pipe_gets_the_bytes_of_the_answer() {
        assert_eq!(shown(false, reason_then_answer), "yes\x1b]0;evil\x07\n");
    }

    #[test]
    fn an_answer_that_ends_its_line_gets_no_second_line_end() {
        let text = shown(false, |screen| {
            screen.answer("a\n").unwrap();
            screen.end_answer().unwrap();
            screen.note("n").unwrap();
        });
        assert_eq!(text, "a\nn\n");
    }
}
