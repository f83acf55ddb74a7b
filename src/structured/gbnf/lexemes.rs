//! Which parts of a GBNF grammar may be read as one lexeme.
//!
//! The lexer reads the longest lexeme. That is the same as trying every reading where no text of a
//! lexeme goes on to become another text of it or of any other lexeme.

use std::collections::{HashMap, HashSet};

use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};

use super::parser::{Grammar, Node};

/// Comparisons of two lexemes; each may take some thousand states.
const MAX_COMPARISONS: usize = 3_000;
const COMPARISON_FUEL: u64 = 5_000;

/// Finds out whether the texts of lexemes begin one another.
pub(super) struct Lexemes<'g> {
    grammar: &'g Grammar,
    builder: RegexBuilder,
    rules: HashMap<usize, ExprRef>,
    num_comparisons: usize,
    compared: HashMap<(ExprRef, ExprRef), bool>,
    /// Not to be read as one lexeme, since others go on like them.
    broken: HashSet<ExprRef>,
}

impl<'g> Lexemes<'g> {
    pub(super) fn new(grammar: &'g Grammar) -> Self {
        Self {
            grammar,
            builder: RegexBuilder::new(),
            rules: HashMap::new(),
            num_comparisons: 0,
            compared: HashMap::new(),
            broken: HashSet::new(),
        }
    }

    /// The texts of a node without recursion; `None` where they can't be read.
    pub(super) fn expression(&mut self, node: &Node) -> Option<ExprRef> {
        let ast = match node {
            Node::Literal(text) => RegexAst::Literal(text.clone()),
            Node::Class(class) => RegexAst::Regex(class.clone()),
            Node::Rule(index) => {
                if let Some(known) = self.rules.get(index) {
                    return Some(*known);
                }
                let grammar = self.grammar;
                let expression = self.expression(&grammar.rules[*index].body)?;
                self.rules.insert(*index, expression);
                return Some(expression);
            }
            Node::Sequence(nodes) => RegexAst::Concat(self.expressions(nodes)?),
            Node::Choice(nodes) => RegexAst::Or(self.expressions(nodes)?),
            Node::Repeat(node, min, max) => {
                let repeated = RegexAst::ExprRef(self.expression(node)?);
                RegexAst::Repeat(Box::new(repeated), *min, max.unwrap_or(u32::MAX))
            }
            Node::Token(_) => return None,
        };
        self.builder.mk(&ast).ok()
    }

    fn expressions(&mut self, nodes: &[Node]) -> Option<Vec<RegexAst>> {
        nodes.iter().map(|node| self.expression(node).map(RegexAst::ExprRef)).collect()
    }

    /// Whether the texts of `node` are one lexeme, as far as the node itself goes.
    pub(super) fn is_whole(&mut self, node: &Node) -> bool {
        if let Node::Class(_) = node {
            return true;
        }
        let Some(expression) = self.expression(node) else { return false };
        !self.broken.contains(&expression)
            && !self.builder.is_nullable(expression)
            && !self.goes_on(expression, expression)
    }

    /// Breaks the lexemes that go on where another one of `all` ends; whether there were any.
    pub(super) fn break_conflicts(&mut self, all: &[Node]) -> bool {
        let expressions: Vec<_> = all.iter().filter_map(|node| self.expression(node)).collect();
        let before = self.broken.len();
        for &short in &expressions {
            for &long in &expressions {
                if short != long && !self.broken.contains(&long) && self.goes_on(short, long) {
                    self.broken.insert(long);
                }
            }
        }
        self.broken.len() > before
    }

    // Whether a text of `long` goes on after a text of `short`. Said of lexemes that are too
    // complex to tell, too.
    fn goes_on(&mut self, short: ExprRef, long: ExprRef) -> bool {
        if let Some(known) = self.compared.get(&(short, long)) {
            return *known;
        }
        self.num_comparisons += 1;
        if self.num_comparisons > MAX_COMPARISONS {
            return true;
        }
        let more = RegexAst::Regex("(?s:.+)".to_owned());
        let longer = RegexAst::Concat(vec![RegexAst::ExprRef(short), more]);
        let both = RegexAst::And(vec![RegexAst::ExprRef(long), longer]);
        let regex = self.builder.mk(&both);
        let regex = regex.and_then(|both| self.builder.to_regex_limited(both, COMPARISON_FUEL));
        let answer = regex.map_or(true, |mut regex| !regex.always_empty());
        self.compared.insert((short, long), answer);
        answer
    }
}
