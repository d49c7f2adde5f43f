//! The dashboard of root's cluster, for its users.

use std::net::TcpListener;

use super::Cluster;

#[test]
fn users_of_roots_cluster_get_a_link_of_their_own() {
    // Free now; if another process takes it in between, the test fails and says so.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cluster = Cluster::start("web", &format!("[rest]\nlisten = \"127.0.0.1:{port}\""));
    let link = cluster.users_ok(&["web"]);
    assert!(link.starts_with(&format!("http://127.0.0.1:{port}/login?link=")), "{link}");
}
