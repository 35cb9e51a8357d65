//! Calls and bulk data over gRPC, for `bench/rpc.sh`: a server process and a client process, each on
//! one thread, over loopback TCP. Prints what was measured as JSON.
//!
//! `tonic-bench [SECONDS]`

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

mod wire {
    include!(concat!(env!("OUT_DIR"), "/bench.Bench.rs"));
}
use wire::bench_client::BenchClient;
use wire::bench_server::{Bench, BenchServer};

/// Bytes up, and how many are wanted back.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Data {
    #[prost(bytes = "bytes", tag = "1")]
    pub up: Bytes,
    #[prost(uint32, tag = "2")]
    pub back: u32,
}

const MAX: usize = 8 << 20;
const BULK: usize = 1 << 20;

struct Answers(Bytes);

#[tonic::async_trait]
impl Bench for Answers {
    async fn call(&self, asked: Request<Data>) -> Result<Response<Data>, Status> {
        let back = asked.get_ref().back as usize;
        if back > self.0.len() {
            return Err(Status::invalid_argument("back"));
        }
        Ok(Response::new(Data { up: self.0.slice(..back), back: 0 }))
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let service = BenchServer::new(Answers(Bytes::from(vec![0; BULK])))
        .max_decoding_message_size(MAX)
        .max_encoding_message_size(MAX);
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    Server::builder()
        .tcp_nodelay(true)
        .initial_connection_window_size(MAX as u32)
        .initial_stream_window_size(MAX as u32)
        .add_service(service)
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

/// Calls with `window` of them under way: how many a second.
async fn rate(
    client: &BenchClient<Channel>,
    data: &Data,
    window: usize,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..window {
        let (mut client, data) = (client.clone(), data.clone());
        set.spawn(async move {
            let mut done = 0u64;
            while begin.elapsed() < time {
                client.call(data.clone()).await?;
                done += 1;
            }
            Ok::<u64, Status>(done)
        });
    }
    let mut calls = 0;
    while let Some(done) = set.join_next().await {
        calls += done??;
    }
    Ok(calls as f64 / begin.elapsed().as_secs_f64())
}

async fn measure(at: SocketAddr, time: Duration) -> Result<(), Box<dyn Error>> {
    let channel = Endpoint::from_shared(format!("http://{at}"))?
        .tcp_nodelay(true)
        .initial_connection_window_size(MAX as u32)
        .initial_stream_window_size(MAX as u32)
        .connect()
        .await?;
    let mut client = BenchClient::new(channel)
        .max_decoding_message_size(MAX)
        .max_encoding_message_size(MAX);
    let mut trips = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let sent = Instant::now();
        client.call(Data::default()).await?;
        trips.push(sent.elapsed().as_nanos() as f64 / 1000.0);
    }
    trips.sort_by(f64::total_cmp);
    let up = Data { up: Bytes::from(vec![0; BULK]), back: 0 };
    let down = Data { up: Bytes::new(), back: BULK as u32 };
    println!(
        "{}",
        serde_json::json!({
            "round_trip_us": trips[trips.len() / 2],
            "calls_per_second": rate(&client, &Data::default(), 256, time).await?,
            "write_mib_per_second": rate(&client, &up, 4, time).await?,
            "read_mib_per_second": rate(&client, &down, 4, time).await?,
        })
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return runtime.block_on(serve());
    }
    let seconds: f64 = argument.as_deref().unwrap_or("2").parse()?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let out = server.stdout.take().ok_or("the server has no output")?;
    BufReader::new(out).read_line(&mut line)?;
    let measured = runtime.block_on(measure(line.trim().parse()?, Duration::from_secs_f64(seconds)));
    server.kill()?;
    server.wait()?;
    measured
}
