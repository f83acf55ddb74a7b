//! Thoughts before an answer, in token ids: a grammar waits for their end, and a budget brings it
//! about.
//!
//! Knows no text: where thoughts end is told as a list of ids.

/// How a sequence's thoughts begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThoughtParams {
    /// The ids that end thoughts, in order; not empty.
    pub close: Vec<u32>,
    /// Whether the prompt ends within thoughts.
    pub starts_inside: bool,
    /// The id that may open them as the very first one.
    pub open: Option<u32>,
    /// Most tokens of thoughts; then they are closed.
    pub budget: Option<usize>,
}

/// Where a sequence stands.
#[derive(Clone, Debug)]
pub(super) struct Thoughts {
    params: ThoughtParams,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was said yet; thoughts may begin.
    Start,
    Inside {
        num_tokens: usize,
        /// How many of the closing ids were the last tokens.
        closed: usize,
    },
    Outside,
}

impl Thoughts {
    pub(super) fn new(params: ThoughtParams) -> Self {
        let state = match (params.starts_inside, params.open) {
            (true, _) => State::Inside { num_tokens: 0, closed: 0 },
            (false, Some(_)) => State::Start,
            (false, None) => State::Outside,
        };
        Self { params, state }
    }

    /// Whether the next token is a thought.
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

    /// Takes a token. Whether it was part of the thoughts or their marks, and not of the answer.
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

    fn thoughts(close: &[u32], budget: Option<usize>) -> Thoughts {
        let close = close.to_vec();
        Thoughts::new(ThoughtParams { close, starts_inside: true, open: None, budget })
    }

    #[test]
    fn several_ids_end_thoughts_wherever_they_begin() {
        let mut thoughts = thoughts(&[7, 7, 8], None);
        for token in [1, 7, 7, 7] {
            assert!(thoughts.push(token) && thoughts.inside());
        }
        assert!(thoughts.push(8) && !thoughts.inside());
        assert!(!thoughts.push(7));
    }

    #[test]
    fn a_spent_budget_closes_thoughts_token_by_token() {
        let mut thoughts = thoughts(&[7, 8], Some(2));
        assert_eq!(thoughts.due(), None);
        thoughts.push(1);
        thoughts.push(2);
        for expected in [7, 8] {
            assert_eq!(thoughts.due(), Some(expected));
            thoughts.push(expected);
        }
        assert!(!thoughts.inside() && thoughts.due().is_none());
    }

    #[test]
    fn thoughts_may_begin_with_the_first_token_only() {
        let params =
            ThoughtParams { close: vec![7], starts_inside: false, open: Some(6), budget: Some(0) };
        let mut thinks = Thoughts::new(params.clone());
        assert_eq!(thinks.may_open(), Some(6));
        assert!(thinks.push(6) && thinks.due() == Some(7));
        let mut answers = Thoughts::new(params);
        assert!(!answers.push(1) && answers.may_open().is_none());
        assert!(!answers.push(6) && !answers.inside());
    }
}
