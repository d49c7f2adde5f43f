//! Questions to etcd over gRPC, to one member at a time. A member that fails is left for the next one.

use std::time::Duration;

use squall_engine::replica::etcd::{Ask, Done, Op, Pair, Problem, Reply, Txn};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::proto;

/// Longest answer that is accepted, bytes: a poll reads up to 16 entries of 1 MiB, pieces of an entry can be more.
const ANSWER_BYTES_MAX: usize = 512 << 20;
/// etcd's number for the comparison of the revision of the last change.
const TARGET_MOD: i32 = 2;

/// Asks etcd.
pub(super) struct Caller {
    members: Vec<Endpoint>,
    /// The member that is asked.
    at: usize,
    grpc: Option<Grpc<Channel>>,
    user: Option<(String, String)>,
    token: Option<String>,
    timeout: Duration,
}

impl Caller {
    pub(super) fn new(members: Vec<Endpoint>, user: Option<(String, String)>, timeout: Duration) -> Self {
        Self { members, at: 0, grpc: None, user, token: None, timeout }
    }

    /// Asks, and waits for the answer or for the end of the time that it may take.
    pub(super) async fn ask(&mut self, ask: Ask) -> Result<Reply, Problem> {
        let late = || Status::deadline_exceeded("no answer in time");
        let timeout = self.timeout;
        let done = tokio::time::timeout(timeout, self.call(ask)).await.unwrap_or_else(|_| Err(late()));
        done.map_err(|status| self.problem(&status))
    }

    /// Returns the problem that a status tells of, and turns to the next member if this one is to blame.
    fn problem(&mut self, status: &Status) -> Problem {
        let text = format!("{}: {}", self.member(), status.message());
        match status.code() {
            Code::ResourceExhausted if status.message().contains("space") => return Problem::NoSpace(text),
            Code::PermissionDenied => return Problem::Refused(text),
            Code::InvalidArgument if status.message().contains("authentication failed") => {
                return Problem::Refused(text);
            }
            Code::Unauthenticated => self.token = None,
            _ => {}
        }
        (self.at, self.grpc) = (self.at + 1, None);
        Problem::Unavailable(text)
    }

    fn member(&self) -> String {
        let count = self.members.len().max(1);
        self.members.get(self.at % count).map_or_else(String::new, |member| member.uri().to_string())
    }

    async fn call(&mut self, ask: Ask) -> Result<Reply, Status> {
        if self.user.is_some() && self.token.is_none() {
            self.authenticate().await?;
        }
        match ask {
            Ask::Txn(txn) => {
                let done: proto::TxnResponse = self.unary("/etcdserverpb.KV/Txn", encoded(txn)).await?;
                Ok(Reply::Txn(decoded(done)))
            }
            Ask::Grant { seconds } => {
                let grant = proto::LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX) };
                let granted: proto::LeaseResponse = self.unary("/etcdserverpb.Lease/LeaseGrant", grant).await?;
                Ok(Reply::Granted { lease: granted.id })
            }
            Ask::KeepAlive { lease } => self.keep_alive(lease).await,
            Ask::Compact { revision } => {
                let compact = proto::CompactionRequest { revision };
                match self.unary::<_, proto::Nothing>("/etcdserverpb.KV/Compact", compact).await {
                    // Somebody else has compacted: what was wanted holds.
                    Err(status) if status.code() != Code::OutOfRange => Err(status),
                    _ => Ok(Reply::Compacted),
                }
            }
            Ask::Usage => {
                let status: proto::StatusResponse =
                    self.unary("/etcdserverpb.Maintenance/Status", proto::Nothing {}).await?;
                let used = if status.db_size_in_use > 0 { status.db_size_in_use } else { status.db_size };
                Ok(Reply::Usage { used: used.unsigned_abs() })
            }
        }
    }

    async fn authenticate(&mut self) -> Result<(), Status> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let request = proto::AuthenticateRequest { name, password };
        let answer: proto::AuthenticateResponse = self.unary("/etcdserverpb.Auth/Authenticate", request).await?;
        self.token = Some(answer.token);
        Ok(())
    }

    async fn keep_alive(&mut self, lease: i64) -> Result<Reply, Status> {
        let request = self.request(only(proto::LeaseKeepAliveRequest { id: lease }))?;
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<proto::LeaseKeepAliveRequest, proto::LeaseResponse>::default();
        let mut answers = self.ready().await?.streaming(request, path, codec).await?.into_inner();
        let answer = answers.message().await?;
        Ok(Reply::Alive { exists: answer.is_some_and(|answer| answer.ttl > 0) })
    }

    async fn unary<Q, A>(&mut self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let request = self.request(message)?;
        let answer =
            self.ready().await?.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, Status> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            let token = MetadataValue::try_from(token.as_str())
                .map_err(|_| Status::unauthenticated("etcd gave a token that can't be sent"))?;
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    async fn ready(&mut self) -> Result<&mut Grpc<Channel>, Status> {
        let count = self.members.len().max(1);
        let member = self.members.get(self.at % count).ok_or_else(|| Status::unavailable("no member is named"))?;
        let grpc = self
            .grpc
            .get_or_insert_with(|| Grpc::new(member.connect_lazy()).max_decoding_message_size(ANSWER_BYTES_MAX));
        grpc.ready().await.map_err(|e| Status::unavailable(text_of(&e)))?;
        Ok(grpc)
    }
}

/// Returns an error with its causes.
fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A stream of one message.
fn only<T>(message: T) -> impl tonic::codegen::tokio_stream::Stream<Item = T> {
    tonic::codegen::tokio_stream::once(message)
}

fn encoded(txn: Txn) -> proto::TxnRequest {
    let compare = txn.compare.into_iter().map(|compare| proto::Compare {
        result: 0,
        target: TARGET_MOD,
        key: compare.key.into_bytes(),
        union: Some(proto::Target::ModRevision(compare.modified)),
    });
    let ops = |ops: Vec<Op>| ops.into_iter().map(operation).collect();
    proto::TxnRequest { compare: compare.collect(), success: ops(txn.then), failure: ops(txn.otherwise) }
}

fn operation(op: Op) -> proto::RequestOp {
    let end = |end: Option<String>| end.map(String::into_bytes).unwrap_or_default();
    let request = match op {
        Op::Get { key, end: to, limit } => {
            proto::Request::Range(proto::RangeRequest { key: key.into_bytes(), range_end: end(to), limit })
        }
        Op::Put { key, value, lease } => {
            proto::Request::Put(proto::PutRequest { key: key.into_bytes(), value, lease: lease.unwrap_or_default() })
        }
        Op::Delete { key, end: to } => {
            proto::Request::DeleteRange(proto::DeleteRangeRequest { key: key.into_bytes(), range_end: end(to) })
        }
    };
    proto::RequestOp { request: Some(request) }
}

fn decoded(done: proto::TxnResponse) -> Done {
    let pair = |kv: proto::KeyValue| Pair {
        key: String::from_utf8_lossy(&kv.key).into_owned(),
        value: kv.value,
        modified: kv.mod_revision,
    };
    let read = |response: proto::ResponseOp| {
        response.range.map(|range| range.kvs.into_iter().map(pair).collect()).unwrap_or_default()
    };
    Done {
        revision: done.header.map_or(0, |header| header.revision),
        succeeded: done.succeeded,
        results: done.responses.into_iter().map(read).collect(),
    }
}
