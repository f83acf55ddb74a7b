//! Sums, differences and counting, all to 20. Refuses to know larger numbers.

use super::dialogue::Dialogue;
use super::dice::Dice;

/// The largest number that occurs.
pub(crate) const LIMIT: usize = 20;

/// Every sum and difference: operands, whether it is a sum, result.
pub(crate) fn enumerate() -> impl Iterator<Item = Sum> {
    (0..=LIMIT).flat_map(|result| {
        (0..=result).flat_map(move |part| {
            [
                Sum { left: part, right: result - part, plus: true },
                Sum { left: result, right: part, plus: false },
            ]
        })
    })
}

/// One sum or difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) plus: bool,
}

impl Sum {
    fn draw(dice: &mut Dice) -> Self {
        let result = dice.below(LIMIT + 1);
        let part = dice.below(result + 1);
        if dice.chance(50) {
            Self { left: part, right: result - part, plus: true }
        } else {
            Self { left: result, right: part, plus: false }
        }
    }

    pub(crate) fn result(self) -> usize {
        if self.plus { self.left + self.right } else { self.left - self.right }
    }

    pub(crate) fn question(self, dice: &mut Dice) -> String {
        let Self { left, right, plus } = self;
        let (sign, word) = if plus { ("+", "plus") } else { ("-", "minus") };
        match dice.below(9) {
            0 | 1 => format!("What is {left} {sign} {right}?"),
            2 => format!("{left} {sign} {right}"),
            3 => format!("{left}{sign}{right}"),
            4 => format!("What is {left} {word} {right}?"),
            5 => format!("How much is {left} {sign} {right}?"),
            6 => format!("{left} {sign} {right} = ?"),
            7 => format!("Can you tell me what {left} {word} {right} is?"),
            _ => format!("What's {left} {sign} {right}?"),
        }
    }

    pub(crate) fn answer(self) -> String {
        let sign = if self.plus { '+' } else { '-' };
        format!("{} {sign} {} = {}.", self.left, self.right, self.result())
    }
}

/// One to three sums in a row.
pub(crate) fn sums(dice: &mut Dice) -> Dialogue {
    let mut dialogue = Dialogue::default();
    for _ in 0..dice.between(1, 3) {
        let sum = Sum::draw(dice);
        dialogue.ask_exactly(sum.question(dice), sum.answer());
    }
    dialogue
}

/// Counting from one number to another, up or down.
pub(crate) fn counting(dice: &mut Dice) -> Dialogue {
    let (mut from, to) = (dice.below(LIMIT + 1), dice.below(LIMIT + 1));
    let question = if dice.chance(20) && to > 0 {
        from = 1;
        dice.pick(&["Count to {}.", "Can you count to {}?", "Please count to {}.", "count to {}"])
            .replace("{}", &to.to_string())
    } else {
        let direction = match (from.cmp(&to), dice.chance(20)) {
            (_, false) | (std::cmp::Ordering::Equal, _) => "",
            (std::cmp::Ordering::Less, _) => " up",
            (std::cmp::Ordering::Greater, _) => " down",
        };
        match dice.below(4) {
            0 | 1 => format!("Count{direction} from {from} to {to}."),
            2 => format!("Please count{direction} from {from} to {to}."),
            _ => format!("Can you count{direction} from {from} to {to}?"),
        }
    };
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(question, count(from, to));
    dialogue
}

/// Whether `answer` reads as a sum or difference, right or wrong, or as counting.
pub(crate) fn reads(answer: &str) -> bool {
    let Some(answer) = answer.strip_suffix('.') else { return false };
    let numbers = |text: &str, between: &str| -> Option<Vec<usize>> {
        text.split(between).map(|number| number.parse().ok()).collect()
    };
    if let Some((left, result)) = answer.split_once(" = ") {
        let pair = |sign| numbers(left, sign).is_some_and(|numbers| numbers.len() == 2);
        return result.parse::<usize>().is_ok() && (pair(" + ") || pair(" - "));
    }
    numbers(answer, ", ").is_some_and(|numbers| {
        let by_one = |up: bool| {
            numbers.windows(2).all(|w| if up { w[1] == w[0] + 1 } else { w[0] == w[1] + 1 })
        };
        by_one(true) || by_one(false)
    })
}

fn count(from: usize, to: usize) -> String {
    let mut numbers: Vec<String> =
        (from.min(to)..=from.max(to)).map(|number| number.to_string()).collect();
    if from > to {
        numbers.reverse();
    }
    numbers.join(", ") + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_462_are_listed_once_and_right() {
        let all: Vec<Sum> = enumerate().collect();
        assert_eq!(all.len(), 462);
        for (index, sum) in all.iter().enumerate() {
            assert!(!all[..index].contains(sum));
            let numbers: Vec<usize> = sum
                .answer()
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|n| n.parse().ok())
                .collect();
            let [left, right, result] = numbers[..] else { panic!("{}", sum.answer()) };
            let expected = if sum.plus { left + right } else { left - right };
            assert_eq!(result, expected);
            assert!(result <= LIMIT && left <= LIMIT);
        }
    }

    #[test]
    fn counting_ends_where_it_was_asked_to() {
        assert_eq!(count(3, 6), "3, 4, 5, 6.");
        assert_eq!(count(4, 1), "4, 3, 2, 1.");
        assert_eq!(count(7, 7), "7.");
    }
}
