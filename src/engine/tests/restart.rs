//! A panic of the engine's thread beside the model: all end, and the engine begins anew once.

use super::*;

fn restarts(running: &Running) -> bool {
    let line = "sconce:engine_restarts_total{model_name=\"test\",engine=\"0\"} 1";
    running.metrics.render().lines().any(|own| own == line)
}

fn failed(outputs: OutputStream) -> bool {
    let (_, end) = block_on(collect(outputs));
    matches!(end, Some(EngineOutput::Failed(EngineError::StepFailed(_))))
}

#[test]
fn a_panic_beside_the_model_ends_all_and_the_engine_begins_anew_once() {
    let model = Memory::Blocks;
    let slow = Duration::from_millis(1);
    let (running, thread) = start_on(model, &config(64), slow, Arc::new(Disk));
    let wanted = || vec![request(prompt(1, 70), 20, 1), request(prompt(2, 5), 9, 2)];
    let expected = answers(&running, wanted());
    // One that streams, and the one that the engine panics over.
    let bystander = running.handle.submit(request(prompt(3, 20), 400, 3));
    let bad = || running.handle.submit(request(vec![1, MISCOUNTS], 5, 0));
    assert!(failed(bad()));
    let begun = restarts(&running);
    assert!(
        begun || running.handle.health(BOUND) == EngineHealth::Restarting || restarts(&running)
    );
    assert!(failed(bystander));
    // What comes meanwhile waits for the engine, which has the same answers as before.
    assert_eq!(answers(&running, wanted()), expected);
    assert!(restarts(&running));
    assert_eq!(running.handle.health(BOUND), EngineHealth::Healthy);
    assert!(failed(bad()));
    thread.join().expect("the thread ends by itself");
    assert_eq!(running.handle.health(BOUND), EngineHealth::Dead);
}

/// Somebody else has a part of the state: threads that read and write its folder.
#[test]
fn an_engine_with_a_folder_of_blocks_ends_after_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        kv_disk: Some(crate::config::KvDisk {
            path: folder.path().to_owned(),
            max_bytes: 1 << 20,
            patience: Duration::from_secs(1),
        }),
        ..config(64)
    };
    let (running, thread) = start_on(Memory::Blocks, &config, Duration::ZERO, Arc::new(Disk));
    assert!(failed(running.handle.submit(request(vec![1, MISCOUNTS], 5, 0))));
    thread.join().expect("the thread ends by itself");
    assert_eq!(running.handle.health(BOUND), EngineHealth::Dead);
}
