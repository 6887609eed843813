//! The cases, as data.
//!
//! A script of `walls` or `escape` prints a line for everything that should not be possible and is. `$NS_…`, `$CANARY`,
//! `$PORT` and `$CALLER` tell it about the host: our own namespaces, a file, a listening port on loopback and our user.

use std::time::Duration;

use sandstorm_types::{ByteSize, LimitName, Limits};

/// One program and what must become of it.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) suite: &'static str,
    /// Programs beside the shell's own that the script needs.
    pub(super) programs: &'static [&'static str],
    /// A wall of the report without which the case makes no sense.
    pub(super) wall: Option<&'static str>,
    pub(super) script: &'static str,
    pub(super) expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// The script runs to its end and has nothing to say.
    Silence,
    /// This limit ends the program.
    EndedBy(LimitName),
    /// This limit is touched, and the script has nothing to say.
    Touched(LimitName),
}

impl Expect {
    /// The limit that is on trial.
    pub(super) fn limit(self) -> Option<LimitName> {
        match self {
            Self::Silence => None,
            Self::EndedBy(limit) | Self::Touched(limit) => Some(limit),
        }
    }
}

/// Small enough that every case is over soon.
pub(super) fn limits(case: &Case) -> Limits {
    let mut limits = Limits {
        // A busy machine is not a broken one.
        wall: Duration::from_secs(60),
        memory: ByteSize::mib(64),
        processes: 32,
        open_files: 64,
        disk: ByteSize::mib(8),
        inodes: 256,
        output: ByteSize::kib(16),
        ..Limits::default()
    };
    match case.expect.limit() {
        Some(LimitName::Wall) => limits.wall = Duration::from_millis(300),
        Some(LimitName::CpuTime) => limits.cpu_time = Some(Duration::from_millis(200)),
        _ => {}
    }
    limits
}

const fn wall(name: &'static str, script: &'static str) -> Case {
    Case { name, suite: "walls", programs: &[], wall: None, script, expect: Expect::Silence }
}

const fn limit(name: &'static str, expect: Expect, script: &'static str) -> Case {
    Case { name, suite: "limits", programs: &[], wall: None, script, expect }
}

const fn escape(name: &'static str, programs: &'static [&'static str], script: &'static str) -> Case {
    Case { name, suite: "escape", programs, wall: None, script, expect: Expect::Silence }
}

pub(super) const CASES: &[Case] = &[
    wall(
        "own namespaces",
        r#"for pair in user:$NS_USER pid:$NS_PID mnt:$NS_MNT net:$NS_NET ipc:$NS_IPC uts:$NS_UTS cgroup:$NS_CGROUP; do
            [ "$(readlink /proc/self/ns/${pair%%:*})" = "${pair#*:}" ] && echo "shares the ${pair%%:*} namespace"
        done; :"#,
    ),
    wall(
        "no capabilities",
        r#"while read -r key value; do
            case $key in CapEff:|CapPrm:|CapInh:|CapBnd:|CapAmb:) [ "$value" = 0000000000000000 ] || echo "$key $value";; esac
        done < /proc/self/status"#,
    ),
    wall(
        "filter and no new privileges",
        r#"while read -r key value; do
            case $key in NoNewPrivs:) [ "$value" = 1 ] || echo "$key $value";; Seccomp:) [ "$value" = 2 ] || echo "$key $value";; esac
        done < /proc/self/status"#,
    ),
    Case {
        wall: Some("uid_wall"),
        ..wall(
            "own user id",
            r#"while read -r inside outside count; do
                [ "$CALLER" -ge "$outside" ] && [ "$CALLER" -lt $((outside + count)) ] && echo "user $CALLER of the host is $inside here"
            done < /proc/self/uid_map; :"#,
        )
    },
    wall(
        "system is read-only",
        r#"for dir in / /usr /usr/bin /etc /dev /proc; do ( : > "$dir/sandstorm-doctor" ) 2>/dev/null && echo "wrote to $dir"; done; :"#,
    ),
    wall("files of the host are not there", r#"[ -e "$CANARY" ] && echo "$CANARY is here"; ls -A /root 2>/dev/null; :"#),
    wall("agent is hidden", r#"[ -e /proc/1 ] && echo "/proc/1 is here"; :"#),
    wall(
        "kernel files are masked",
        r#"for file in kcore kallsyms keys kmsg modules timer_list; do
            [ -s /proc/$file ] && echo "/proc/$file has content"; [ -c /proc/$file ] || [ ! -e /proc/$file ] || echo "/proc/$file is bare"
        done; :"#,
    ),
    wall(
        "only harmless devices",
        r#"for path in /dev/*; do case ${path#/dev/} in
            null|zero|full|random|urandom|tty|pts|ptmx|shm|fd|stdin|stdout|stderr|console|mqueue) ;; *) echo "$path is here";; esac
        done"#,
    ),
    wall(
        "no inherited files",
        r#"for fd in /proc/self/fd/*; do case ${fd##*/} in 0|1|2) ;; *) [ -e "$fd" ] && echo "$fd is $(readlink "$fd")";; esac; done; :"#,
    ),
    wall(
        "only loopback",
        r#"while read -r name rest; do case $name in Inter-*|face|lo:*) ;; *:*) echo "interface $name";; esac; done < /proc/net/dev"#,
    ),
    limit("wall time", Expect::EndedBy(LimitName::Wall), "sleep 60"),
    limit("processor time", Expect::EndedBy(LimitName::CpuTime), "while :; do :; done"),
    limit("memory", Expect::EndedBy(LimitName::Memory), "tail /dev/zero"),
    limit("output", Expect::EndedBy(LimitName::Output), "while :; do echo 'far more than anybody would read'; done"),
    limit(
        "processes",
        Expect::Touched(LimitName::Processes),
        "i=0; while [ $i -lt 64 ]; do sleep 5 >/dev/null 2>&1 & i=$((i+1)); done 2>/dev/null; kill 0",
    ),
    limit(
        "disk",
        Expect::Touched(LimitName::Disk),
        "for dir in /tmp /workspace /home/user /dev/shm; do head -c 16m /dev/zero > $dir/big 2>/dev/null && echo \"16 MiB fit into $dir\"; done; :",
    ),
    limit(
        "files and folders",
        Expect::Touched(LimitName::Inodes),
        "i=0; while ( : > /tmp/f$i ) 2>/dev/null; do i=$((i+1)); [ $i -gt 512 ] && echo 'made 512 files' && break; done; :",
    ),
    limit(
        "open files",
        Expect::Silence,
        "[ \"$(ulimit -n)\" -le 64 ] || ulimit -n; (ulimit -Hn 4096) 2>/dev/null && echo 'raised its own limit'; :",
    ),
    escape("new user namespace", &["unshare"], "unshare -U true 2>/dev/null && echo 'made one'; :"),
    escape("new mount namespace", &["unshare"], "unshare -m true 2>/dev/null && echo 'made one'; :"),
    escape("mount", &["mount"], "mount -t tmpfs none /tmp 2>/dev/null && echo 'mounted'; mount -o remount,rw /usr 2>/dev/null && echo 'remounted'; :"),
    escape("chroot", &["chroot"], "chroot / /bin/true 2>/dev/null && echo 'changed root'; :"),
    escape(
        "device nodes",
        &["mknod"],
        "mknod /tmp/disk b 8 0 2>/dev/null && echo 'made a disk'; mknod /tmp/mem c 1 1 2>/dev/null && echo 'made memory'; :",
    ),
    escape("namespaces of another process", &["nsenter"], "nsenter -t 1 -a true 2>/dev/null && echo 'entered'; :"),
    // Reaching the end of the script is the proof: it dies with the agent, and stands still with it.
    escape("ending the agent", &[], "for signal in KILL STOP TERM SEGV; do kill -$signal 1 2>/dev/null; done; :"),
    escape("becoming root", &["setpriv"], "setpriv --reuid=0 --clear-groups true 2>/dev/null && echo 'became root'; :"),
    escape(
        "kernel settings",
        &[],
        "for file in kernel/core_pattern kernel/modprobe kernel/hostname vm/overcommit_memory user/max_user_namespaces; do
            [ -e /proc/sys/$file ] && ( read -r old < /proc/sys/$file; echo \"$old\" > /proc/sys/$file ) 2>/dev/null && echo \"wrote $file\"
        done; :",
    ),
    escape("a port of the host", &["bash"], "bash -c 'exec 3<>/dev/tcp/127.0.0.1/$PORT' 2>/dev/null && echo 'connected'; :"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_limits_valid() {
        let mut names: Vec<_> = CASES.iter().map(|case| (case.suite, case.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            assert_eq!(limits(case).validate(), Ok(()), "{}", case.name);
        }
    }
}
