//! CPUs as Linux numbers them.

/// The CPUs that this process may run on, if the system says.
#[cfg(target_os = "linux")]
pub(super) fn allowed() -> Option<Vec<usize>> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(numbers(list))
}

/// The numbers in a list such as `0-3,8`.
pub(super) fn numbers(list: &str) -> Vec<usize> {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.trim().parse::<usize>().ok()?..=to.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(numbers("0-2,5, 7-7\n"), [0, 1, 2, 5, 7]);
        assert!(numbers("").is_empty());
    }
}
