//! temporary
#[path = "../tests/it/provider.rs"]
mod provider;
#[path = "../tests/it/world.rs"]
mod world;
#[tokio::main]
async fn main() {
    let mut r = world::control_settings(); r.enforcement = sandstorm_types::Enforcement::BestEffort; r.quota.sandboxes=100000; r.quota.runs_per_minute=1000000; let w = world::World::with(Default::default(), Default::default(), r).await;
    println!("{} {} {}", w.address, w.admin, w.key);
    tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
}
