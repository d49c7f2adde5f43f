//! Stories of those who follow what happens.

use crate::Story;
use crate::cluster::Cluster;

pub(crate) const STORIES: &[Story] = &[
    ("events_are_told_as_they_happen_and_a_follower_resumes_at_a_position", events),
    ("squeue_follows_the_jobs_that_it_lists", queue),
];

/// Submits a job that waits, runs `deed` beside a follower that has come, and lets the job go.
fn beside(c: &Cluster, follower: &[&str], came: impl Fn() -> bool, deed: impl FnOnce()) -> String {
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| c.run(follower));
        c.until("the follower has come", came);
        deed();
        let done = follower.join().unwrap();
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
        done.out
    })
}

/// How often someone began to follow.
fn follows(c: &Cluster) -> u64 {
    let told = c.ok(&["sdiag"]);
    let line = told.lines().find(|line| line.contains("REQUEST_FOLLOW_EVENTS"));
    let count = line.and_then(|line| line.split("count:").nth(1)?.split_whitespace().next());
    count.map_or(0, |count| count.parse().unwrap())
}

fn events(c: &Cluster) {
    // Jobs of other stories must not end meanwhile.
    c.until("no job is left", || c.run(&["squeue", "-h", "-t", "running,completing"]).out.is_empty());
    let before = follows(c);
    let mut job = String::new();
    let follower = ["squall", "events", "--json", "--count=3", "--kind=job-submitted,job-started,job-ended"];
    let told = beside(c, &follower, || follows(c) > before, || job = c.sbatch(&["-J", "seen", "--wrap", "exit 3"]));
    let told: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = told.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["job-submitted", "job-started", "job-ended"]);
    assert!(told.iter().all(|event| event["job"]["label"] == job.as_str() && event["job"]["name"] == "seen"));
    assert_eq!(told[2]["job"]["exit_code"]["return_code"], 3);
    // The feed is kept for those who come back.
    let first = told[0]["position"].as_str().unwrap();
    let again = c.run(&["squall", "events", "--from", first, "--job", &job, "--count=2"]);
    assert_eq!((again.status, again.err.as_str()), (0, ""), "{again:?}");
    let lines: Vec<&str> = again.out.lines().collect();
    assert!(lines[0].contains(&format!(" job {job} (seen of ")) && lines[0].contains(" started on n"), "{lines:?}");
    assert!(lines[1].ends_with(", FAILED, exit code 3:0"), "{lines:?}");
    let refused = c.run(&["squall", "events", "--node", "nowhere"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("nowhere"), "{refused:?}");
}

fn queue(c: &Cluster) {
    let before = follows(c);
    let job = c.sbatch(&["--hold", "-J", "watched", "--wrap", "true"]);
    std::thread::scope(|scope| {
        let shell = "timeout 60 squeue --follow --name=watched -o '%i %t' | head -n 3";
        let follower = scope.spawn(|| c.run(&["/bin/sh", "-c", shell]));
        c.until("the follower has come", || follows(c) > before);
        c.ok(&["scontrol", "release", &job]);
        let done = follower.join().unwrap();
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines[..2], ["JOBID ST", &format!("{job} PD")], "{done:?}");
        assert_eq!(lines.len(), 3, "{done:?}");
    });
    assert_eq!(c.end_of(&job), "COMPLETED|0:0");
}
