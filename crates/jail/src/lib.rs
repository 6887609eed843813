//! The Linux jail: namespaces, mounts, cgroups, seccomp, Landlock, and the launcher that builds them.
