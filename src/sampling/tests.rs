//! Every stage against a plain reference, and drawn tokens against their distribution.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// What penalties look at of a prompt and an output.
fn looked_at<'a>(
    params: &SamplingParams,
    prompt: &'a [u32],
    output: &'a [u32],
) -> (&'a [u32], &'a [u32]) {
    let Some(most) = params.repeat_last_n else { return (prompt, output) };
    let from = |tokens: &[u32], most: usize| tokens.len().saturating_sub(most);
    let left = most.saturating_sub(output.len());
    (&prompt[from(prompt, left)..], &output[from(output, most)..])
}

/// The whole pipeline as plainly as it can be written: full sorts, f64, no shortcuts.
fn reference(params: &SamplingParams, prompt: &[u32], output: &[u32], logits: &[f32]) -> Vec<f64> {
    let mut scores: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    for (token, bias) in &params.logit_bias {
        scores[*token as usize] += f64::from(*bias);
    }
    if let Some(allowed) = &params.allowed_token_ids {
        for (_, score) in (0u32..).zip(&mut scores).filter(|(id, _)| !allowed.contains(id)) {
            *score = f64::NEG_INFINITY;
        }
    }
    let (prompt, output) = looked_at(params, prompt, output);
    for (id, score) in (0u32..).zip(&mut scores) {
        let count = output.iter().filter(|seen| **seen == id).count();
        if count > 0 || prompt.contains(&id) {
            let penalty = f64::from(params.repetition_penalty);
            *score = if *score > 0.0 { *score / penalty } else { *score * penalty };
        }
        #[expect(clippy::cast_precision_loss, reason = "tiny counts")]
        let count = count as f64;
        *score -= count * f64::from(params.frequency_penalty);
        *score -= count.min(1.0) * f64::from(params.presence_penalty);
    }
    if params.top_n_sigma > 0.0 {
        let finite = || scores.iter().filter(|score| score.is_finite());
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let count = finite().count() as f64;
        let mean = finite().sum::<f64>() / count;
        let variance = finite().map(|score| (score - mean).powi(2)).sum::<f64>() / count;
        let best = scores.iter().copied().fold(f64::MIN, f64::max);
        let least = best - f64::from(params.top_n_sigma) * variance.sqrt();
        for score in scores.iter_mut().filter(|score| **score < least) {
            *score = f64::NEG_INFINITY;
        }
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    if params.temperature < GREEDY_TEMPERATURE {
        return (0..scores.len()).map(|token| f64::from(u8::from(token == order[0]))).collect();
    }
    let best = scores[order[0]];
    let temperature = f64::from(params.temperature);
    let weight = |token: usize| ((scores[token] - best) / temperature).exp();
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    order.retain(|token| weight(*token) > 0.0);
    let mut total: f64 = order.iter().map(|token| weight(*token)).sum();
    if params.typical_p < 1.0 {
        let surprise = |token: &usize| -(weight(*token) / total).ln();
        let entropy: f64 = order.iter().map(|token| weight(*token) / total * surprise(token)).sum();
        let mut typical = order.clone();
        let distance = |token: &usize| (surprise(token) - entropy).abs();
        typical.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let mut share = 0.0;
        let last = typical.iter().position(|token| {
            share += weight(*token) / total;
            share > f64::from(params.typical_p)
        });
        typical.truncate(last.map_or(typical.len(), |last| last + 1));
        order.retain(|token| typical.contains(token));
        total = order.iter().map(|token| weight(*token)).sum();
    }
    let mut nucleus = Vec::new();
    let mut mass = 0.0;
    for token in order {
        nucleus.push(token);
        mass += weight(token) / total;
        if mass >= f64::from(params.top_p) {
            break;
        }
    }
    let heaviest = weight(nucleus[0]);
    nucleus.retain(|token| weight(*token) >= f64::from(params.min_p) * heaviest);
    let total: f64 = nucleus.iter().map(|token| weight(*token)).sum();
    let mut probabilities = vec![0.0; scores.len()];
    for token in nucleus {
        probabilities[token] = weight(token) / total;
    }
    probabilities
}

/// The distribution the sampler draws from next.
fn distribution(state: &SamplerState, raw: &[f32]) -> Vec<f64> {
    let mut scores = raw.to_vec();
    state.clone().alter(&mut scores).unwrap();
    let scan = logits::scan(&scores);
    let mut probabilities = vec![0.0; raw.len()];
    if state.params.temperature < GREEDY_TEMPERATURE {
        probabilities[logits::first_largest(&scores, &scan)] = 1.0;
        return probabilities;
    }
    match Candidates::new(&state.params, &mut scores, &scan) {
        Candidates::All { weights, sums } => {
            let total: f64 = sums.iter().sum();
            for (probability, weight) in probabilities.iter_mut().zip(weights) {
                *probability = f64::from(*weight) / total;
            }
        }
        Candidates::Few(kept) => {
            let total: f64 = kept.iter().map(|candidate| f64::from(candidate.weight)).sum();
            for candidate in kept {
                probabilities[candidate.token_id as usize] = f64::from(candidate.weight) / total;
            }
        }
    }
    probabilities
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let filters = (
        prop_oneof![Just(0.0f32), 0.1..2.0f32],
        prop_oneof![Just(1.0f32), 0.05..0.99f32],
        0..12u32,
        prop_oneof![Just(0.0f32), 0.01..0.9f32],
        prop_oneof![2 => Just(1.0f32), 1 => 0.05..0.99f32],
        prop_oneof![2 => Just(0.0f32), 1 => 0.3..3.0f32],
    );
    let penalties = (
        prop_oneof![Just(1.0f32), 0.5..2.0f32],
        prop_oneof![Just(0.0f32), -2.0..2.0f32],
        prop_oneof![Just(0.0f32), -2.0..2.0f32],
        prop::collection::vec((0..24u32, -5.0..5.0f32), 0..4),
        prop::option::weighted(0.3, prop::collection::btree_set(0..24u32, 1..8)),
        prop::option::weighted(0.5, 0..10usize),
    );
    (filters, penalties).prop_map(|(filters, penalties)| {
        let (temperature, top_p, top_k, min_p, typical_p, top_n_sigma) = filters;
        let (repetition_penalty, frequency, presence, logit_bias, allowed, repeat_last_n) =
            penalties;
        SamplingParams {
            allowed_token_ids: allowed.map(|allowed| allowed.into_iter().collect()),
            temperature,
            top_p,
            top_k,
            min_p,
            typical_p,
            top_n_sigma,
            repetition_penalty,
            frequency_penalty: frequency,
            presence_penalty: presence,
            repeat_last_n,
            logit_bias,
            ..SamplingParams::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn draws_from_the_reference_distribution(
        params in params(),
        logits in prop::collection::vec(-6.0..6.0f32, 24),
        prompt in prop::collection::vec(0..24u32, 0..6),
        output in prop::collection::vec(0..24u32, 0..6),
    ) {
        let mut state = SamplerState::new(params.clone(), &prompt, 0, Vec::new());
        for token in &output {
            state.counts.push(*token);
        }
        let expected = reference(&params, &prompt, &output, &logits);
        let found = distribution(&state, &logits);
        for token in 0..logits.len() {
            prop_assert!(
                (expected[token] - found[token]).abs() < 1e-4,
                "token {} of {:?}: {} and {}", token, params, expected[token], found[token]
            );
        }
        let drawn = state.sample(&mut logits.clone()).unwrap().token_id;
        prop_assert!(found[drawn as usize] > 0.0);
    }

    #[test]
    fn reports_logprobs_of_the_raw_distribution(
        logits in prop::collection::vec(-6.0..6.0f32, 24),
        top in 0..21u32,
    ) {
        let params = SamplingParams {
            temperature: 0.3,
            top_k: 2,
            logit_bias: vec![(3, 4.0)],
            logprobs: Some(top),
            ..SamplingParams::default()
        };
        let sampled = SamplerState::new(params, &[], 0, Vec::new()).sample(&mut logits.clone());
        let sampled = sampled.unwrap();
        let logprobs = sampled.logprobs.unwrap();
        let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let expected = |id: u32| (f64::from(logits[id as usize]).exp() / total).ln();
        prop_assert!((f64::from(logprobs.logprob) - expected(sampled.token_id)).abs() < 1e-5);
        prop_assert_eq!(logprobs.top.len(), top as usize);
        for pair in logprobs.top.windows(2) {
            prop_assert!(pair[0].1 >= pair[1].1);
        }
        let worst = logprobs.top.last().map_or(f32::INFINITY, |(_, logprob)| *logprob);
        let better = (0..24).filter(|id| expected(*id) > f64::from(worst) + 1e-5).count();
        prop_assert!(better <= top as usize);
        for (id, logprob) in logprobs.top {
            prop_assert!((f64::from(logprob) - expected(id)).abs() < 1e-5);
        }
    }
}

/// Pearson's statistic of drawn tokens against their expected probabilities.
fn chi_square(counts: &HashMap<u32, u32>, expected: &[f64], draws: u32) -> (f64, usize) {
    let mut statistic = 0.0;
    let mut cells: usize = 0;
    for (token, probability) in (0u32..).zip(expected) {
        let seen = f64::from(counts.get(&token).copied().unwrap_or(0));
        if *probability == 0.0 {
            assert!(seen == 0.0, "token {token} can't be drawn");
            continue;
        }
        let wanted = probability * f64::from(draws);
        statistic += (seen - wanted).powi(2) / wanted;
        cells += 1;
    }
    (statistic, cells - 1)
}

#[test]
fn drawn_tokens_follow_their_distribution() {
    let logits: Vec<f32> = (0..16u8).map(|i| f32::from(i % 5) - f32::from(i) * 0.1).collect();
    let cases = [
        SamplingParams::default(),
        SamplingParams { temperature: 0.7, ..SamplingParams::default() },
        SamplingParams { temperature: 1.5, top_k: 6, ..SamplingParams::default() },
        SamplingParams { top_p: 0.8, ..SamplingParams::default() },
        SamplingParams { min_p: 0.2, logit_bias: vec![(2, 1.0)], ..SamplingParams::default() },
    ];
    for params in cases {
        let draws = 40_000;
        let expected = reference(&params, &[], &[], &logits);
        let mut state = SamplerState::new(params.clone(), &[], 0, Vec::new());
        let mut counts = HashMap::new();
        for _ in 0..draws {
            let token = state.sample(&mut logits.clone()).unwrap().token_id;
            *counts.entry(token).or_insert(0) += 1;
        }
        let (statistic, freedom) = chi_square(&counts, &expected, draws);
        // The 99.99 % quantile, by Wilson and Hilferty's approximation.
        #[expect(clippy::cast_precision_loss, reason = "tiny")]
        let freedom = freedom as f64;
        let cube = 1.0 - 2.0 / (9.0 * freedom) + 3.719 * (2.0 / (9.0 * freedom)).sqrt();
        let bound = freedom * cube.powi(3);
        assert!(statistic < bound, "{params:?}: chi-square {statistic} above {bound}");
    }
}

#[test]
fn top_choices_are_excluded_as_often_as_asked() {
    // Probabilities 0.4, 0.3, 0.2, 0.1.
    let logits = [0.4f32, 0.3, 0.2, 0.1].map(f32::ln);
    let count = |probability, threshold, top_k| {
        let params = SamplingParams {
            top_k,
            xtc_probability: probability,
            xtc_threshold: threshold,
            ..SamplingParams::default()
        };
        let mut state = SamplerState::new(params, &[], 0, Vec::new());
        let mut counts = [0.0; 4];
        for _ in 0..20_000 {
            counts[state.sample(&mut logits.clone()).unwrap().token_id as usize] += 1.0 / 20_000.0;
        }
        counts
    };
    let near = |found: [f64; 4], expected: [f64; 4]| {
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.015);
        assert!(near, "{found:?} instead of {expected:?}");
    };
    // Three are at least 0.15: the two above the last of them go.
    near(count(1.0, 0.15, 0), [0.0, 0.0, 2.0 / 3.0, 1.0 / 3.0]);
    near(count(1.0, 0.15, 3), [0.0, 0.0, 1.0, 0.0]);
    near(count(0.5, 0.15, 0), [0.2, 0.15, 0.1 + 1.0 / 3.0, 0.05 + 1.0 / 6.0]);
    // A single one is: it stays.
    near(count(1.0, 0.35, 0), [0.4, 0.3, 0.2, 0.1]);
    near(count(1.0, 0.9, 0), [0.4, 0.3, 0.2, 0.1]);
}

#[test]
fn a_repetition_is_left_for_another_token() {
    let dry = params::DryParams {
        multiplier: 1.0,
        base: 2.0,
        allowed_length: 2,
        last_n: None,
        breakers: std::sync::Arc::default(),
    };
    let params = SamplingParams { temperature: 0.0, dry: Some(dry), ..SamplingParams::default() };
    let mut state = SamplerState::new(params, &[1, 2, 3, 1, 2], 0, Vec::new());
    let mut next = || state.sample(&mut [0.0, 0.1, 0.2, 0.9]).unwrap().token_id;
    assert_eq!([next(), next()], [2, 3]);
}

#[test]
fn equal_seeds_draw_equal_tokens_and_others_do_not() {
    let draw = |seed| {
        let params = SamplingParams { seed, ..SamplingParams::default() };
        let mut state = SamplerState::new(params, &[], 0, Vec::new());
        (0..32).map(|_| state.sample(&mut [0.0; 64]).unwrap().token_id).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}

#[test]
fn suppresses_tokens_until_min_tokens() {
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let mut state = SamplerState::new(params, &[], 2, vec![1]);
    let mut next = || state.sample(&mut [0.5, 2.0, 1.0]).unwrap().token_id;
    assert_eq!([next(), next(), next()], [2, 2, 1]);
}

#[test]
fn refuses_logits_that_are_no_numbers() {
    let mut state = SamplerState::new(SamplingParams::default(), &[], 1, vec![0, 1]);
    for mut logits in [[f32::NAN, 0.0], [f32::NEG_INFINITY; 2], [f32::INFINITY, 0.0], [0.0, 0.0]] {
        assert!(state.sample(&mut logits).is_err());
    }
}

/// A draw as plainly as it can be written: every weight, full sorts, one sum.
fn plain_draw(params: &SamplingParams, logits: &[f32], position: f64) -> u32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut kept: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    if params.top_k > 0 {
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        kept.truncate(params.top_k as usize);
    }
    for (_, weight) in &mut kept {
        *weight = ((*weight - max) / params.temperature).exp();
    }
    let sum = |kept: &[(u32, f32)]| kept.iter().map(|(_, weight)| f64::from(*weight)).sum::<f64>();
    if params.top_p < 1.0 {
        let enough = f64::from(params.top_p) * sum(&kept);
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut mass = 0.0;
        let last = kept.iter().position(|(_, weight)| {
            mass += f64::from(*weight);
            mass >= enough
        });
        kept.truncate(last.map_or(kept.len(), |last| last + 1));
    }
    kept.retain(|(_, weight)| *weight >= params.min_p);
    let mut left = position * sum(&kept);
    let drawn = kept.iter().find(|(_, weight)| {
        left -= f64::from(*weight);
        left < 0.0
    });
    drawn.or(kept.last()).unwrap().0
}

/// Logits of a vocabulary of some thousands: `sharpness` 0 is flat, 3 like a trained model's.
fn vocabulary(length: u32, sharpness: i32, shift: u32) -> Vec<f32> {
    let noise = |i: u32| f32::from((i.wrapping_mul(2_654_435_761) >> 16) as u16) / 65_536.0;
    (0..length).map(|i| noise(i + shift).powi(1 + 3 * sharpness) * 16.0 - 8.0).collect()
}

fn samplings() -> Vec<SamplingParams> {
    let base = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
    vec![
        base.clone(),
        SamplingParams { temperature: 1.7, ..base.clone() },
        SamplingParams { top_k: 40, ..base.clone() },
        SamplingParams { top_k: 2000, top_p: 0.9, ..base.clone() },
        SamplingParams { top_p: 0.95, ..base.clone() },
        SamplingParams { top_p: 0.3, min_p: 0.1, ..base.clone() },
        SamplingParams { min_p: 0.02, ..base },
    ]
}

#[test]
fn seeded_draws_are_those_of_the_plain_sampler() {
    for sharpness in [0, 1, 3] {
        for (length, shift) in [(70, 0), (5003, 11), (20_000, 3)] {
            let logits = vocabulary(length, sharpness, shift);
            for params in samplings() {
                let mut state = SamplerState::new(params.clone(), &[], 0, Vec::new());
                let mut rng = ChaCha8Rng::seed_from_u64(params.seed);
                for _ in 0..20 {
                    let expected = plain_draw(&params, &logits, rng.random());
                    let drawn = state.sample(&mut logits.clone()).unwrap().token_id;
                    assert_eq!(drawn, expected, "{params:?}, {length} tokens, {sharpness}");
                }
            }
        }
    }
}

#[test]
fn rows_drawn_together_are_those_drawn_alone() {
    let states = || -> Vec<SamplerState> {
        let greedy = SamplingParams { temperature: 0.0, logprobs: Some(3), ..Default::default() };
        let all = samplings().into_iter().chain([greedy]).zip(0..);
        let seeded = all.map(|(params, seed)| SamplingParams { seed, ..params });
        seeded.map(|params| SamplerState::new(params, &[1, 2], 1, vec![5])).collect()
    };
    let row = |shift| vocabulary(3000, 2, shift);
    let mut alone = states();
    let expected: Vec<_> =
        alone.iter_mut().zip(0..).map(|(state, shift)| state.sample(&mut row(shift))).collect();
    let mut together = states();
    let mut rows: Vec<_> = (0..).map(row).take(together.len()).collect();
    let found = sample_rows(undrafted(&mut together, &mut rows));
    assert_eq!(found, expected.into_iter().map(SampledTokens::from).collect::<Vec<_>>());
}

/// Each state with its row and no drafts.
fn undrafted<'a>(
    states: &'a mut [SamplerState],
    rows: &'a mut [Vec<f32>],
) -> impl Iterator<Item = DraftedRows<'a>> {
    let none: &[u32] = &[];
    let rows = rows.iter_mut().map(|row| vec![row.as_mut_slice()]);
    states.iter_mut().zip(rows).map(move |(state, row)| (state, none, row))
}

#[test]
fn drafts_are_taken_as_far_as_they_are_drawn_and_leave_the_state_of_drawing_each() {
    let row = |shift| vocabulary(3000, 2, shift);
    for params in samplings() {
        let params = SamplingParams { logprobs: Some(2), ..params };
        let state = SamplerState::new(params, &[1, 2], 1, vec![5]);
        let mut alone = state.clone();
        let expected: Vec<_> = (0..6).map(|shift| alone.sample(&mut row(shift)).unwrap()).collect();
        let drawn: Vec<u32> = expected.iter().map(|token| token.token_id).collect();
        for right in 0..5 {
            let mut drafts = drawn[..5].to_vec();
            drafts[right] += 1;
            let mut rows: Vec<_> = (0..6).map(row).collect();
            let mut drafted = state.clone();
            let rows = rows.iter_mut().map(Vec::as_mut_slice).collect();
            let found = drafted.sample_along(&drafts, rows);
            assert_eq!(found.tokens, expected[..=right]);
            // The next draw shows that nothing more was drawn.
            let next = drafted.sample(&mut row(u32::try_from(right).unwrap() + 1)).unwrap();
            assert_eq!(next, expected[right + 1]);
        }
        let mut rows: Vec<_> = (0..6).map(row).collect();
        rows[3][7] = f32::NAN;
        let rows = rows.iter_mut().map(Vec::as_mut_slice).collect();
        let found = state.clone().sample_along(&drawn[..5], rows);
        assert_eq!(found.tokens, expected[..3], "what was drawn before a bad row counts");
        assert_eq!(found.error, Some(SamplingError::BadLogits("logit 7 is NaN".to_owned())));
    }
}

#[test]
fn a_bad_row_fails_alone() {
    let mut states = [1, 2].map(|seed| {
        let params = SamplingParams { seed, ..SamplingParams::default() };
        SamplerState::new(params, &[], 0, Vec::new())
    });
    let mut rows = [vec![f32::NAN, 1.0], vec![0.0, f32::NEG_INFINITY]];
    let found = sample_rows(undrafted(&mut states, &mut rows));
    let nan = SamplingError::BadLogits("logit 0 is NaN".to_owned());
    assert_eq!(found[0], SampledTokens::from(Err(nan)));
    assert_eq!(found[1].tokens[0].token_id, 0);
}

#[test]
fn the_most_likely_are_found_whatever_their_number() {
    let mut logits = vocabulary(5003, 0, 7);
    // Many equals, across blocks.
    for logit in &mut logits {
        *logit = logit.round();
    }
    logits[4000] = f32::NEG_INFINITY;
    let maxima = logits::scan(&logits).maxima;
    let mut sorted: Vec<u32> = (0..5003).collect();
    sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    for count in [0, 1, 20, 63, 64, 78, 79, 80, 1000, 5003, 9000] {
        let expected = &sorted[..count.min(5003)];
        assert_eq!(logprobs::most_likely(&logits, &maxima, count), expected, "{count}");
    }
}
