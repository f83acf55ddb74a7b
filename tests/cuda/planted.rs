//! That the libraries which look for more than wrong values find it: each kernel here has one bug.

use super::libraries::{Build, changed_library};
use super::run_tests;

/// A bug, by what it makes of which source, the test that meets it and what it must be called.
struct Bug {
    build: Build,
    source: &'static str,
    change: (&'static str, &'static str),
    test: &'static str,
    message: &'static str,
}

const ROTATION: (&str, &str) = (
    "head[i + pairs] = b * cos[i] + a * sin[i];\n    }\n    __syncwarp();",
    "head[i + pairs] = b * cos[i] + a * sin[i];\n    }",
);

const BUGS: [Bug; 7] = [
    // Lanes rotate what others write to the cache; they run one after the other here.
    Bug {
        build: Build::Races,
        source: "kv_write/kernel.cu",
        change: ROTATION,
        test: "keys_and_values_reach_their_slots",
        message: "nothing orders the two",
    },
    // All blocks write to one row.
    Bug {
        build: Build::Races,
        source: "put_rows/kernel.cu",
        change: ("work.rows[blockIdx.x]", "work.rows[0]"),
        test: "rows_reach_their_places",
        message: "of another block",
    },
    Bug {
        build: Build::Races,
        source: "norm/kernel.cu",
        change: ("float mean = 0;", "float mean = threadIdx.x % 2 ? warp_sum(0) : warp_max(0);"),
        test: "norms_equal_the_plain_ones",
        message: "threads meet in different places",
    },
    Bug {
        build: Build::Races,
        source: "norm/kernel.cu",
        change: ("float mean = 0;", "float mean = 0; if (threadIdx.x == 7) { return; }"),
        test: "norms_equal_the_plain_ones",
        message: "in which not all take part",
    },
    Bug {
        build: Build::Races,
        source: "kv_write/kernel.cu",
        change: ("squares += head[i] * head[i];", "squares += head[i] * head[i + 4];"),
        test: "keys_and_values_reach_their_slots",
        message: "not its shared memory",
    },
    // What a copy brings is read before it was waited for.
    Bug {
        build: Build::Races,
        source: "put_rows/kernel.cu",
        change: (
            "const float *from =",
            "__shared__ uint4 room[256];\n    copy_async(&room[threadIdx.x], work.from, false);\n    \
             if (room[threadIdx.x].x) { return; }\n    const float *from =",
        ),
        test: "rows_reach_their_places",
        message: "a race with a copy",
    },
    Bug {
        build: Build::Sanitized,
        source: "put_rows/kernel.cu",
        change: ("to[i] = from[i];", "to[i] = from[i + 3 * work.width];"),
        test: "rows_reach_their_places",
        message: "heap-buffer-overflow",
    },
];

#[test]
fn planted_bugs_are_found() {
    for (index, bug) in BUGS.iter().enumerate() {
        let Bug { build, source, change, test, message } = *bug;
        let folder = format!("cuda_on_host_planted_{index}");
        let Some(library) = changed_library(build, source, change, &folder) else { continue };
        let (passed, printed) = run_tests(build, &library, &[test], "");
        assert!(!passed && printed.contains(message), "{source} {change:?}:\n{printed}");
    }
}
