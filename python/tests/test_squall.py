"""The package against a running cluster: that of ``SQUALL_STATE``, or the machine's."""

import os
import tempfile
import unittest

import squall

#: Seconds that a test waits for what should take less than one.
PATIENCE = 60.0


class Jobs(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name: str) -> str:
        return os.path.join(self.folder.name, name)

    def read(self, name: str) -> str:
        with open(self.path(name)) as file:
            return file.read()

    def submit(self, text: str, **options: squall._client.Option) -> int:
        options = {"output": "/dev/null", **options}
        return squall.submit(text=f"#!/bin/sh\n{text}\n", directory=self.folder.name, **options)

    def wait(self, *ids: squall._client.JobId) -> "list[squall.Job]":
        return squall.wait(*ids, timeout=PATIENCE, interval=0.1)

    def test_a_job_runs_and_is_described(self) -> None:
        job = squall.submit(
            wrap="echo $WORD; exit 3",
            job_name="two words",
            output=self.path("out"),
            directory=self.folder.name,
            environment={"WORD": "; said 'so'"},
        )
        [done] = self.wait(job)
        self.assertEqual((done.id, done.name, done.state, done.exit_code), (str(job), "two words", "FAILED", 3))
        self.assertTrue(done.is_over and not done.ok)
        self.assertEqual((done.reason, done.directory, done.signal), ("NonZeroExitCode", self.folder.name, 0))
        self.assertTrue(done.submitted <= done.started <= done.ended)
        self.assertEqual(self.read("out"), "; said 'so'\n")
        [in_history] = [found for found in squall.jobs(history=True) if found.id == str(job)]
        self.assertEqual((in_history.state, in_history.exit_code, in_history.nodes), ("FAILED", 3, done.nodes))

    def test_a_script_gets_its_arguments(self) -> None:
        with open(self.path("job.sh"), "w") as script:
            script.write('#!/bin/sh\nprintf "%s|" "$@"\n')
        job = squall.submit(self.path("job.sh"), "a b", "--nodes=9", output=self.path("out"), time=5)
        self.assertTrue(self.wait(job)[0].ok)
        self.assertEqual(self.read("out"), "a b|--nodes=9|")

    def test_tasks_of_an_array_are_jobs(self) -> None:
        job = self.submit("exit $SLURM_ARRAY_TASK_ID", array="0-2")
        done = self.wait(job)
        self.assertEqual([(task.id, task.exit_code) for task in done], [(f"{job}_{n}", n) for n in range(3)])
        self.assertEqual([task.exit_code for task in self.wait(f"{job}_2")], [2])

    def test_changes_of_state_are_seen_to_the_end(self) -> None:
        go = self.path("go")
        job = self.submit(f"while [ ! -e {go} ]; do sleep 0.05; done")
        states = []
        for change in squall.watch(job, timeout=PATIENCE, interval=0.05):
            self.assertEqual((change.id, change.before), (str(job), states[-1] if states else None))
            states.append(change.state)
            if change.state == "RUNNING":
                open(go, "w").close()
        self.assertEqual((states[-2:], set(states[:-2]) <= {"PENDING"}), (["RUNNING", "COMPLETED"], True))

    def test_a_cancelled_job_is_over(self) -> None:
        job, held = self.submit("sleep 600"), self.submit("sleep 600", hold=True)
        self.assertIn(str(held), [found.id for found in squall.jobs()])
        squall.cancel(job, held)
        self.assertEqual([done.state for done in self.wait(job, held)], ["CANCELLED", "CANCELLED"])
        squall.cancel()

    def test_a_signal_reaches_the_job(self) -> None:
        job = self.submit("exec sleep 600")
        for change in squall.watch(job, timeout=PATIENCE, interval=0.05):
            if change.state == "RUNNING":
                squall.cancel(job, signal="KILL")
        # As in Slurm: KILL to a whole job cancels it.
        self.assertEqual(squall.jobs(job)[0].state, "CANCELLED")

    def test_what_fails_says_what_the_command_said(self) -> None:
        with self.assertRaises(squall.SquallError) as caught:
            squall.submit(wrap="true", partition="nowhere")
        self.assertEqual(caught.exception.exit_code, 1)
        self.assertIn("Invalid partition name specified", str(caught.exception))
        for ask in (squall.jobs, squall.wait, lambda job: list(squall.watch(job))):
            with self.assertRaisesRegex(squall.SquallError, "4000000: Invalid job id specified"):
                ask(4000000)
        with self.assertRaises(TypeError):
            squall.submit("job.sh", wrap="true")

    def test_a_wait_may_end_before_the_jobs(self) -> None:
        job = self.submit("sleep 600", hold=True)
        for wait in (squall.wait, lambda *ids, **how: list(squall.watch(*ids, **how))):
            with self.assertRaisesRegex(squall.Timeout, str(job)):
                wait(job, timeout=0.2, interval=0.1)
        squall.cancel(job)
        self.wait(job)


if __name__ == "__main__":
    unittest.main()
