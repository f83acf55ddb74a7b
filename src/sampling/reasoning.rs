//! Reasoning before an answer, in token ids: a grammar waits for its end, and a budget brings it
//! about.
//!
//! Knows no text: where reasoning ends is told as a list of ids.

/// How the reasoning of a sequence begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningParams {
    /// The ids that end reasoning, in order; not empty.
    pub close: Vec<u32>,
    /// Whether the prompt ends within reasoning.
    pub starts_inside: bool,
    /// The id that may open it as the very first one.
    pub open: Option<u32>,
    /// Most tokens of reasoning; then it is closed.
    pub budget: Option<usize>,
}

/// Whether a sequence is in its reasoning.
#[derive(Clone, Debug)]
pub(super) struct Reasoning {
    params: ReasoningParams,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was said yet; reasoning may begin.
    Start,
    Inside {
        num_tokens: usize,
        /// How many of the closing ids were the last tokens.
        closed: usize,
    },
    Outside,
}

impl Reasoning {
    pub(super) fn new(params: ReasoningParams) -> Self {
        let state = match (params.starts_inside, params.open) {
            (true, _) => State::Inside { num_tokens: 0, closed: 0 },
            (false, Some(_)) => State::Start,
            (false, None) => State::Outside,
        };
        Self { params, state }
    }

    /// Whether the next token is part of the reasoning.
    pub(super) fn inside(&self) -> bool {
        matches!(self.state, State::Inside { .. })
    }

    /// The id that may come now though it is not part of the answer.
    pub(super) fn may_open(&self) -> Option<u32> {
        self.params.open.filter(|_| self.state == State::Start)
    }

    /// The token that must come next, once the budget is spent.
    pub(super) fn due(&self) -> Option<u32> {
        match self.state {
            State::Inside { num_tokens, closed } if num_tokens >= self.params.budget? => {
                Some(self.params.close[closed])
            }
            _ => None,
        }
    }

    /// Takes a token. Whether it was part of the reasoning or its marks, and not of the answer.
    pub(super) fn push(&mut self, token: u32) -> bool {
        match self.state {
            State::Outside => false,
            State::Start if self.params.open == Some(token) => {
                self.state = State::Inside { num_tokens: 0, closed: 0 };
                true
            }
            State::Start => {
                self.state = State::Outside;
                false
            }
            State::Inside { num_tokens, closed } => {
                let closed = self.closing(closed, token);
                self.state = if closed == self.params.close.len() {
                    State::Outside
                } else {
                    State::Inside { num_tokens: num_tokens + 1, closed }
                };
                true
            }
        }
    }

    /// How many of the closing ids are the last tokens when `token` follows `closed` of them: the
    /// longest beginning of the list that the tokens end with.
    fn closing(&self, closed: usize, token: u32) -> usize {
        let close = &self.params.close;
        let mut tail = close[..closed].to_vec();
        tail.push(token);
        (0..=tail.len()).rev().find(|len| tail.ends_with(&close[..*len])).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasoning(close: &[u32], budget: Option<usize>) -> Reasoning {
        let close = close.to_vec();
        Reasoning::new(ReasoningParams { close, starts_inside: true, open: None, budget })
    }

    #[test]
    fn several_ids_end_reasoning_wherever_they_begin() {
        let mut reasoning = reasoning(&[7, 7, 8], None);
        for token in [1, 7, 7, 7] {
            assert!(reasoning.push(token) && reasoning.inside());
        }
        assert!(reasoning.push(8) && !reasoning.inside());
        assert!(!reasoning.push(7));
    }

    #[test]
    fn a_spent_budget_closes_reasoning_token_by_token() {
        let mut reasoning = reasoning(&[7, 8], Some(2));
        assert_eq!(reasoning.due(), None);
        reasoning.push(1);
        reasoning.push(2);
        for expected in [7, 8] {
            assert_eq!(reasoning.due(), Some(expected));
            reasoning.push(expected);
        }
        assert!(!reasoning.inside() && reasoning.due().is_none());
    }

    #[test]
    fn reasoning_may_begin_with_the_first_token_only() {
        let params = ReasoningParams {
            close: vec![7],
            starts_inside: false,
            open: Some(6),
            budget: Some(0),
        };
        let mut thinks = Reasoning::new(params.clone());
        assert_eq!(thinks.may_open(), Some(6));
        assert!(thinks.push(6) && thinks.due() == Some(7));
        let mut answers = Reasoning::new(params);
        assert!(!answers.push(1) && answers.may_open().is_none());
        assert!(!answers.push(6) && !answers.inside());
    }
}
