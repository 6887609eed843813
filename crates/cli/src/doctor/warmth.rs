//! What a server can have ready before anybody asks for it.

use sandstorm_config::Config;
use sandstorm_jail::launcher::{ZygoteConfig, zygote_obstacle};

use super::check::Check;
use crate::zygotes;

const GROUP: &str = "server";

pub(crate) fn checks(config: &Config) -> Vec<Check> {
    vec![pool(config), interpreters(config)]
}

fn pool(config: &Config) -> Check {
    let pool = &config.pool;
    match pool.enabled {
        true => Check::ok(
            GROUP,
            "pool",
            format!("up to {} sandboxes are made ahead, in at most {}", pool.max, pool.memory),
        ),
        false => Check::missing(
            GROUP,
            "pool",
            "switched off: every sandbox is made when it is asked for",
            "set pool.enabled to true",
        ),
    }
}

fn interpreters(config: &Config) -> Check {
    let found = zygotes::configured(config).and_then(|all| zygote_obstacle(&all).map_or(Ok(all), Err));
    match found {
        Ok(all) => Check::ok(GROUP, "warm Python", loaded(&all)),
        Err(why) => Check::missing(
            GROUP,
            "warm Python",
            format!("Python programs are started cold: {why}"),
            "run the server as root, with the system's own Python in /usr and pool.zygotes set to true",
        ),
    }
}

fn loaded(zygotes: &[ZygoteConfig]) -> String {
    let modules: Vec<&str> = zygotes.iter().flat_map(|zygote| &zygote.preload).map(String::as_str).collect();
    match modules.is_empty() {
        true => {
            "Python programs begin in a warm interpreter; no module of pool.preload is installed".to_owned()
        }
        false => format!("Python programs begin in a warm interpreter; loaded ahead: {}", modules.join(", ")),
    }
}
