//! Keywords of strings and numbers.

use serde_json::{Map, Value, json};

use super::super::error::GrammarError;
use super::formats::{self, Format};
use super::limits::{MAX_COUNT, MAX_EXACT, MIN_EXACT, too_many};
use super::pattern;
use super::rewrite::{Parts, Place, Rewriter};
use super::types::Types;

/// A longer text is out of any context's reach, so a bound above this is none.
const REACHABLE_LENGTH: u64 = 10_000_000;

/// Adds what the schema says of strings and numbers.
pub(super) fn rewrite(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    if parts.types.intersects(Types::STRING) {
        length(parts, at)?;
        text(parts, at)?;
    }
    if parts.types.intersects(Types::NUMBER) {
        range(parts, at)?;
        multiple(rewriter, parts, at)?;
    }
    Ok(())
}

/// A count: an integer of any spelling, not negative.
pub(super) fn count(
    map: &Map<String, Value>,
    keyword: &str,
    at: Place<'_>,
) -> Result<Option<u64>, GrammarError> {
    let Some(value) = map.get(keyword) else { return Ok(None) };
    let integral = value.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0 && *n <= MAX_EXACT);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked")]
    let count = value.as_u64().or(integral.map(|n| n as u64));
    let count = count.ok_or_else(|| {
        GrammarError::malformed(at.pointer, format!("`{keyword}` is {value}, not a count"))
    })?;
    Ok(Some(count))
}

fn length(parts: &mut Parts<'_>, at: Place<'_>) -> Result<(), GrammarError> {
    if let Some(min) = count(parts.map, "minLength", at)? {
        if min > MAX_COUNT {
            return Err(too_many("minLength", min));
        }
        parts.body.insert("minLength".to_owned(), json!(min));
    }
    if let Some(max) = count(parts.map, "maxLength", at)?
        && max < REACHABLE_LENGTH
    {
        parts.body.insert("maxLength".to_owned(), json!(max));
    }
    Ok(())
}

fn text(parts: &mut Parts<'_>, at: Place<'_>) -> Result<(), GrammarError> {
    let string = |keyword: &str| match parts.map.get(keyword) {
        Some(Value::String(text)) => Ok(Some(text)),
        None => Ok(None),
        Some(_) => Err(GrammarError::malformed(at.pointer, format!("`{keyword}` is not a string"))),
    };
    let (pattern, format) = (string("pattern")?, string("format")?);
    for pattern in pattern.map(|p| pattern::split_look_ahead(p)).unwrap_or_default() {
        let translated = pattern::translate(&pattern)
            .map_err(|reason| GrammarError::unsupported("pattern", at.pointer, reason))?;
        parts.also_matches(translated);
    }
    let Some(format) = format else { return Ok(()) };
    match formats::lookup(format) {
        Some(Format::Annotation) => {}
        Some(Format::Pattern(found)) => {
            let found = pattern::translate(found).expect("the formats are tested");
            parts.also_matches(found);
        }
        None => {
            let reason = format!("{format:?} is not a format known here");
            return Err(GrammarError::unsupported("format", at.pointer, reason));
        }
    }
    Ok(())
}

impl Parts<'_> {
    fn also_matches(&mut self, translated: String) {
        if self.body.contains_key("pattern") {
            self.also_of_same_type(json!({"pattern": translated}));
        } else {
            self.body.insert("pattern".to_owned(), Value::from(translated));
        }
    }
}

fn range(parts: &mut Parts<'_>, at: Place<'_>) -> Result<(), GrammarError> {
    let map = parts.map;
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let inclusive = map.get(bound).map(|value| number(value, bound, at)).transpose()?;
        let (inclusive, strict) = match map.get(exclusive) {
            // Draft 4: it says how the other bound is meant.
            Some(Value::Bool(true)) => (None, inclusive),
            None | Some(Value::Bool(false)) => (inclusive, None),
            Some(value) => (inclusive, Some(number(value, exclusive, at)?)),
        };
        for (keyword, value) in [(bound, inclusive), (exclusive, strict)] {
            let Some(value) = value else { continue };
            let clamped = value.clamp(-MAX_EXACT, MAX_EXACT);
            // Only inwards: a bound may become stricter, never laxer.
            let outwards = if bound == "minimum" { clamped < value } else { clamped > value };
            if outwards {
                let reason = format!("{value} is above 2^53 in size");
                return Err(GrammarError::unsupported(keyword, at.pointer, reason));
            }
            if value != 0.0 && value.abs() < MIN_EXACT {
                let reason = format!("{value} is below 1e-9 in size");
                return Err(GrammarError::unsupported(keyword, at.pointer, reason));
            }
            parts.body.insert(keyword.to_owned(), json!(clamped));
        }
    }
    let format = map.get("format").and_then(Value::as_str);
    if let Some((min, max)) = format.and_then(formats::integer_range) {
        parts.also_of_same_type(json!({"minimum": min, "maximum": max}));
    }
    Ok(())
}

fn number(value: &Value, keyword: &str, at: Place<'_>) -> Result<f64, GrammarError> {
    value.as_f64().ok_or_else(|| {
        GrammarError::malformed(at.pointer, format!("`{keyword}` is {value}, not a number"))
    })
}

fn multiple(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let Some(value) = parts.map.get("multipleOf") else { return Ok(()) };
    let step = number(value, "multipleOf", at)?;
    let decimal = decimal(step).ok_or_else(|| {
        let reason = format!("{step} is not a positive decimal of at most nine digits");
        GrammarError::unsupported("multipleOf", at.pointer, reason)
    })?;
    rewriter.multiples.push(decimal);
    // Where all numbers of a schema are steps apart, the least common multiple of the steps is
    // computed in 32 bits.
    if !common_multiple_fits(&mut rewriter.multiples) {
        let reason = "the least common multiple of the schema's steps has too many digits";
        return Err(GrammarError::unsupported("multipleOf", at.pointer, reason));
    }
    parts.body.insert("multipleOf".to_owned(), json!(step));
    // A reader takes numbers for doubles, and of larger ones can't tell whether they are multiples.
    let largest = MAX_EXACT / 10_f64.powi(i32::try_from(decimal.1).unwrap_or(i32::MAX));
    parts.also_of_same_type(json!({"minimum": -largest.floor(), "maximum": largest.floor()}));
    Ok(())
}

// `step` as digits and the number of them behind the point.
fn decimal(step: f64) -> Option<(u32, u32)> {
    if step <= 0.0 || !step.is_finite() {
        return None;
    }
    let text = format!("{step}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits: u32 = format!("{whole}{fraction}").parse().ok()?;
    let scale = u32::try_from(fraction.len()).ok()?;
    (digits < 1_000_000_000 && scale < 10).then_some((digits, scale))
}

fn common_multiple_fits(steps: &mut Vec<(u32, u32)>) -> bool {
    steps.sort_unstable();
    steps.dedup();
    if steps.len() < 2 {
        return true;
    }
    let scale = steps.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
    let scaled = steps.iter().map(|(digits, own)| u64::from(*digits) * 10_u64.pow(scale - own));
    let mut multiple = 1_u64;
    scaled.into_iter().all(|step| {
        let product = multiple.saturating_mul(step);
        multiple = product / greatest_common_divisor(multiple, step);
        u32::try_from(product).is_ok()
    })
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
