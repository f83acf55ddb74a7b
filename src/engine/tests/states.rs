//! Sequences with recurrent states, which resume from snapshots of earlier ones.

use super::*;

/// The answer, and the tokens that were found in the cache.
fn cached(running: &Running, request: EngineRequest) -> (Answer, usize) {
    let (answer, end) = block_on(collect(running.handle.submit(request)));
    let Some(EngineOutput::Finished { stats, .. }) = end else { panic!("{end:?}") };
    (answer, stats.cached_tokens)
}

#[test]
fn a_conversation_resumes_where_it_ended_and_counts_what_it_found() {
    for memory in [Memory::State, Memory::StateAlone] {
        let running = start_with(memory, &config(64), Duration::ZERO);
        let cold = EngineConfig { prefix_cache: false, ..config(64) };
        let cold = start_with(memory, &cold, Duration::ZERO);
        let mut said = prompt(1, 150);
        let mut found = Vec::new();
        for turn in 0..4 {
            let asked = || request(said.clone(), 40, turn);
            let (answer, hit) = cached(&running, asked());
            assert_eq!(answer, answers(&cold, vec![asked()]).remove(0), "{memory:?}, turn {turn}");
            found.push(hit);
            said.extend(answer.0);
            said.extend(prompt(10 + turn as u32, 30));
        }
        // 150 and 40 tokens, then 70 more with every turn; the last one of an answer is not computed.
        assert_eq!(found, [0, 160, 256, 320], "{memory:?}");
        let text = running.metrics.render();
        let counts = |name: &str, count: usize| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line.ends_with(&format!(" {count}")), "{line}");
        };
        counts("vllm:prefix_cache_hits_total", 160 + 256 + 320);
        counts("vllm:prefix_cache_queries_total", 150 + 220 + 290 + 360);
    }
}

#[test]
fn a_failed_step_leaves_no_snapshot_behind() {
    let running = start_with(Memory::State, &config(64), Duration::ZERO);
    let mut tokens = prompt(1, 200);
    tokens[150] = FAILS;
    let stream = running.handle.submit(request(tokens.clone(), 4, 0));
    let (_, end) = block_on(collect(stream));
    assert!(matches!(end, Some(EngineOutput::Failed(_))), "{end:?}");
    // What was computed before it failed stays.
    tokens[150] = 1;
    let (answer, hit) = cached(&running, request(tokens.clone(), 20, 0));
    assert!(hit < 150, "{hit}");
    let fresh = start_with(Memory::State, &config(64), Duration::ZERO);
    assert_eq!(answer, answers(&fresh, vec![request(tokens, 20, 0)]).remove(0));
    running.assert_idle();
}
