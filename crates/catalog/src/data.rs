//! The data files, compiled in.

/// Name and text of every provider's file.
pub(crate) const PROVIDERS: &[(&str, &str)] = &[
    ("aws-lambda-microvms", include_str!("../data/aws-lambda-microvms.toml")),
    ("beam", include_str!("../data/beam.toml")),
    ("blaxel", include_str!("../data/blaxel.toml")),
    ("cloudflare", include_str!("../data/cloudflare.toml")),
    ("codesandbox", include_str!("../data/codesandbox.toml")),
    ("daytona", include_str!("../data/daytona.toml")),
    ("e2b", include_str!("../data/e2b.toml")),
    ("hopx", include_str!("../data/hopx.toml")),
    ("isorun", include_str!("../data/isorun.toml")),
    ("kubernetes", include_str!("../data/kubernetes.toml")),
    ("local", include_str!("../data/local.toml")),
    ("modal", include_str!("../data/modal.toml")),
    ("morph", include_str!("../data/morph.toml")),
    ("namespace", include_str!("../data/namespace.toml")),
    ("northflank", include_str!("../data/northflank.toml")),
    ("runloop", include_str!("../data/runloop.toml")),
    ("sandstorm", include_str!("../data/sandstorm.toml")),
    ("sprites", include_str!("../data/sprites.toml")),
    ("tenki", include_str!("../data/tenki.toml")),
    ("vercel", include_str!("../data/vercel.toml")),
];
