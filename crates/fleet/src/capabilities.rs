//! What a fleet can do: whatever one of its members can. Whether the one that holds a sandbox can, it says when it is asked.

use sandstorm_types::Capabilities;

/// Each thing that one of the two can. Every field is named, so that a new one is not forgotten.
pub(crate) fn either(one: Capabilities, other: Capabilities) -> Capabilities {
    macro_rules! any {
        ($($field:ident),* ; $($rest:ident: $value:expr),* $(,)?) => {
            Capabilities { $($field: one.$field || other.$field,)* $($rest: $value,)* }
        };
    }
    any! {
        template_host, template_image, template_snapshot, exec, exec_stdin, exec_tty, exec_background, exec_attach,
        exec_signals, exec_channel, exec_root, exec_code, host_trees, files, files_archive, files_search, files_watch,
        files_metadata, files_root, connect, usage, pause, pause_files,
        snapshot_files, snapshot_memory, live_fork, warm_start, network_none, network_allow, network_open, network_change,
        writable_root, disk_space, requirements, lifetime;
        isolation: one.isolation.max(other.isolation),
        limits: one.limits.union(other.limits),
        max_memory: larger(one.max_memory, other.max_memory),
        max_milli_cpus: larger(one.max_milli_cpus, other.max_milli_cpus),
        max_disk: larger(one.max_disk, other.max_disk),
        max_lifetime_seconds: larger(one.max_lifetime_seconds, other.max_lifetime_seconds),
    }
}

/// `None` is no limit.
fn larger<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.zip(other).map(|(one, other)| one.max(other))
}

#[cfg(test)]
mod tests {
    use sandstorm_types::ByteSize;

    use super::*;

    #[test]
    fn a_fleet_can_what_one_of_it_can() {
        let one = Capabilities { exec: true, max_memory: Some(ByteSize::mib(1)), ..Capabilities::default() };
        let other =
            Capabilities { pause: true, max_memory: Some(ByteSize::mib(2)), ..Capabilities::default() };
        let both = either(one, other);
        assert!(both.exec && both.pause && !both.files);
        assert_eq!(both.max_memory, Some(ByteSize::mib(2)));
        assert_eq!(either(one, Capabilities::default()).max_memory, None);
    }
}
