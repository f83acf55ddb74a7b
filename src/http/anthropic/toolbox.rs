//! The tools of a conversation, which it may find, add and take away on its way: the results of
//! searches name deferred tools, and system messages have `tool_addition` and `tool_removal` blocks.
//!
//! The tools that stand before the conversation never change on its way, or all of the prompt would
//! be computed again: one that comes later is described where it comes, and one that goes stays
//! described and can't be called any more.

use serde_json::Value;

use super::tools::tool;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::Tool;
use crate::http::request::fields::{FieldReader, text_member};
use crate::http::wire::messages::{DefinedTool, ReferencedTool, ToolChangeBlock};

/// The tools up to some place of the conversation.
#[derive(Debug)]
pub(super) struct Toolbox {
    tools: Vec<Entry>,
    /// Names of those that the provider would run.
    hosted: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    tool: Tool,
    /// Whether the conversation has described it.
    described: bool,
}

impl Toolbox {
    /// The tools that a request declares.
    pub(super) fn new(declared: &[Value], fields: &mut FieldReader) -> Result<Self, ApiError> {
        let mut tools = Vec::with_capacity(declared.len());
        let mut hosted = Vec::new();
        for (at, value) in declared.iter().enumerate() {
            match tool(value, &format!("tools[{at}]"), fields)? {
                Some(tool) => tools.push(Entry { tool, described: false }),
                None => hosted.extend(text_member(value, "name").map(str::to_owned)),
            }
        }
        Ok(Self { tools, hosted })
    }

    /// What the model is told of a tool that a search found.
    pub(super) fn find(&mut self, name: &str) -> String {
        let entry = self.entry(name).map(Entry::describe);
        entry.unwrap_or_else(|| format!("The tool {name} is available."))
    }

    /// What the model is told in the place of a block that adds a tool, or removes it. None of a
    /// tool that the provider would run.
    pub(super) fn change(
        &mut self,
        block: &Value,
        adds: bool,
        path: &str,
        fields: &mut FieldReader,
    ) -> Result<Option<String>, ApiError> {
        let ToolChangeBlock { tool: changed } = fields.variant(block, path)?;
        let inner = format!("{path}.tool");
        match text_member(&changed, "type") {
            Some("tool_reference") => {
                let ReferencedTool { name } = fields.variant(&changed, &inner)?;
                if self.hosted.contains(&name) {
                    fields.ignore(path);
                    return Ok(None);
                }
                let entry = self.entry(&name).ok_or_else(|| {
                    let param = format!("{inner}.name");
                    let message = format!("{param}: there is no tool {name:?} before it");
                    ApiError::field(param, message)
                })?;
                Ok(Some(entry.change(adds)))
            }
            Some("tool_definition") if adds => {
                let DefinedTool { definition } = fields.variant(&changed, &inner)?;
                let defined = tool(&definition, &format!("{inner}.definition"), fields)?;
                Ok(defined.map(|defined| self.define(defined)))
            }
            Some("mcp_tool_reference" | "mcp_toolset_reference") => {
                fields.ignore(path);
                Ok(None)
            }
            kind => {
                let kind = kind.unwrap_or("nothing");
                let message = format!("{inner}.type: tools of the type {kind:?} can't be changed");
                let param = Some(format!("{inner}.type"));
                Err(ApiError::Invalid { message, param, code: Some("unsupported_value") })
            }
        }
    }

    /// The tools at the end; `named` has to be called, whether a search found it or not.
    pub(super) fn into_list(self, named: Option<&str>) -> Vec<Tool> {
        let left = |Entry { mut tool, described }: Entry| {
            if !described && named == Some(tool.function.name.as_str()) {
                tool.deferred = false;
            }
            (!tool.deferred || (described && !tool.removed)).then_some(tool)
        };
        let mut list: Vec<Tool> = self.tools.into_iter().filter_map(left).collect();
        // Templates say how to call where they show the first tool.
        if list.iter().all(|tool| tool.deferred) {
            for tool in &mut list {
                tool.deferred = false;
            }
        }
        list
    }

    /// Adds a tool that no list of the request has, or another one of that name.
    fn define(&mut self, tool: Tool) -> String {
        self.tools.retain(|entry| entry.tool.function.name != tool.function.name);
        let tool = Tool { deferred: true, ..tool };
        self.tools.push(Entry { tool, described: false });
        self.tools.last_mut().expect("it was just added").describe()
    }

    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        self.tools.iter_mut().find(|entry| entry.tool.function.name == name)
    }
}

impl Entry {
    fn change(&mut self, adds: bool) -> String {
        self.tool.removed = !adds;
        if adds {
            return self.describe();
        }
        format!("The tool {} is not available any more.", self.tool.function.name)
    }

    /// Says that the tool is there, with its definition if that is new.
    fn describe(&mut self) -> String {
        let Tool { function, definition, deferred, .. } = &self.tool;
        let is_new = *deferred && !self.described;
        self.described = true;
        let name = &function.name;
        if is_new {
            format!("The tool {name} is available: {definition}")
        } else {
            format!("The tool {name} is available.")
        }
    }
}
