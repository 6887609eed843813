//! A host and an agent that is played here, well or badly.

use sandstorm_provider::Tasks;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sandstorm_agent::frame::{self, Decoder};
use sandstorm_agent::protocol::{
    Ending, FromAgent, Held, InputStream, Stream, Task, TaskUsage, ToAgent, VERSION, WINDOW, cost,
};
use serde_bytes::ByteBuf;

use super::{AgentClient, AgentError, TaskEvent, TaskInput};

struct Player {
    socket: UnixStream,
    decoder: Decoder,
}

impl Player {
    fn start() -> (Self, AgentClient) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let client = AgentClient::new(theirs.into(), &Tasks::default()).unwrap();
        (Self { socket: ours, decoder: Decoder::default() }, client)
    }

    fn say(&mut self, message: FromAgent) {
        self.socket.write_all(&frame::encode(&message).unwrap()).unwrap();
    }

    fn output(&mut self, id: u32, bytes: usize) {
        let bytes = ByteBuf::from(vec![b'x'; bytes]);
        self.say(FromAgent::Output { id, stream: Stream::Output, bytes });
    }

    fn hear(&mut self) -> ToAgent {
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message;
            }
            let mut buffer = [0; 4096];
            let n = self.socket.read(&mut buffer).expect("the host says nothing");
            assert!(n > 0, "the host closed the connection");
            self.decoder.push(&buffer[..n]);
        }
    }
}

fn held(id: u32) -> FromAgent {
    FromAgent::Held(Held { id, tag: [id as u8; 16], walls: None, first: [0; 3], pending: [100, 0] })
}

fn exited(id: u32) -> FromAgent {
    let usage = TaskUsage { user_microseconds: 0, system_microseconds: 0, peak_memory_bytes: 0 };
    FromAgent::Exited { id, ending: Ending::Code(0), usage }
}

async fn breaks(client: &AgentClient, why: &'static str) {
    client.lost().await;
    assert_eq!(client.ready().await, Err(AgentError::Protocol(why)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_breaks_the_rules_loses_the_connection() {
    let ready = |held| FromAgent::Ready { version: VERSION, held };
    let cases: [(Vec<FromAgent>, &'static str); 6] = [
        (vec![FromAgent::Ready { version: VERSION + 1, held: 0 }], "another version"),
        (vec![ready(u32::MAX)], "a greeting that is none"),
        (vec![ready(0), ready(0)], "a greeting that is none"),
        (vec![held(1)], "a task that nobody asked for"),
        (vec![ready(1), held(1), held(2)], "a task that nobody asked for"),
        (vec![ready(2), held(1), held(1)], "a task that is told twice"),
    ];
    for (said, why) in cases {
        let (mut player, client) = Player::start();
        for message in said {
            player.say(message);
        }
        breaks(&client, why).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_says_no_more_than_its_window_and_a_few_words() {
    for (bytes, pieces) in [(60_000, WINDOW / cost(60_000) + 1), (0, WINDOW / cost(0) + 1)] {
        let (mut player, client) = Player::start();
        player.say(FromAgent::Ready { version: VERSION, held: 0 });
        let _handle = client.start(Task::Connect { port: 1 }, None).unwrap();
        for _ in 0..pieces {
            player.output(1, bytes);
        }
        breaks(&client, "more output than was asked for").await;
    }
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let _handle = client.start(Task::Connect { port: 1 }, None).unwrap();
    for _ in 0..17 {
        player.say(FromAgent::Closed { id: 1, stream: Stream::Output });
    }
    breaks(&client, "a task without end of words").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_hand_is_not_acknowledged() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let mut handle = client.start(Task::Connect { port: 1 }, Some([7; 16])).unwrap();
    assert!(matches!(player.hear(), ToAgent::Start { id: 1, lasting: Some(tag), .. } if tag == [7; 16]));
    player.output(1, 65_536);
    assert!(matches!(handle.next().await, Some(TaskEvent::Output { .. })));
    player.say(exited(1));
    // A word of the host's that is behind a credit, if there is one.
    handle.input.close().unwrap();
    assert!(matches!(player.hear(), ToAgent::CloseInput { .. }), "it was acknowledged too early");
    assert!(matches!(handle.next().await, Some(TaskEvent::Exited { .. })));
    let credit = ToAgent::Credit { id: 1, stream: Stream::Output, bytes: cost(65_536) };
    assert_eq!(player.hear(), credit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pieces_become_one() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let mut handle = client.start(Task::Connect { port: 1 }, None).unwrap();
    for _ in 0..1000 {
        player.output(1, 1);
    }
    player.say(exited(1));
    let (mut total, mut events) = (0, 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    while let Some(TaskEvent::Output { bytes, .. }) = handle.next().await {
        total += bytes.len();
        events += 1;
    }
    assert_eq!((total, events), (1000, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_listens_to_ends_unless_it_lasts() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    drop(client.start(Task::Connect { port: 1 }, None).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 1, .. }));
    assert_eq!(player.hear(), ToAgent::Signal { id: 1, signal: 9 });
    assert_eq!(player.hear(), ToAgent::Forget { id: 1 });
    drop(client.start(Task::Connect { port: 1 }, Some([1; 16])).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 2, .. }));
    drop(client.start(Task::Connect { port: 1 }, None).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 3, .. }), "what lasts was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_an_earlier_host_are_found_with_what_they_owe() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 1 });
    player.say(held(40));
    player.output(40, 3);
    client.ready().await.unwrap();
    let mut found = client.take_held();
    let (told, mut handle) = found.pop().unwrap();
    assert_eq!((told.tag, told.pending), ([40; 16], [100, 0]));
    assert!(matches!(handle.next().await, Some(TaskEvent::Output { bytes, .. }) if bytes.len() == 3));
    // New tasks get other numbers, and input waits for the credit that the earlier host did not get.
    let _new = client.start(Task::Connect { port: 1 }, None).unwrap();
    assert!(matches!(player.hear(), ToAgent::Start { id: 41, .. }));
    let room = WINDOW as usize - 100;
    let input = TaskInput { to: InputStream::Main, ..handle.input.clone() };
    let bytes = vec![0; room + 1];
    let writing = input.write(&bytes);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), writing).await.is_err(),
        "it wrote past the window"
    );
}
