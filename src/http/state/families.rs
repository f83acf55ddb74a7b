//! Whose markup the answers of a model have.

use crate::config::{Parser, ServerConfig};
use crate::text::{reasoning, tool_calls};

/// The families of models whose markup a template shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) tools: Option<&'static str>,
    pub(crate) reasoning: Option<&'static str>,
}

impl Families {
    /// As configured, else as the template shows.
    pub(crate) fn new(config: &ServerConfig, template: Option<&str>) -> Self {
        let family = |parser, detect: fn(&str) -> Option<&'static str>| match parser {
            Parser::Detected => template.and_then(detect),
            Parser::Named(name) => Some(name),
            Parser::Off => None,
        };
        Self {
            tools: family(config.tool_call_parser, tool_calls::detect),
            reasoning: family(config.reasoning_parser, reasoning::detect),
        }
    }

    /// The family whose answers need to be parsed even without tools.
    pub(crate) fn always(self) -> Option<&'static str> {
        self.tools.filter(|name| tool_calls::always(name))
    }
}
