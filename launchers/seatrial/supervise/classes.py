"""Failure classes: what an attempt's end was, as far as the policy has to tell ends apart."""

from __future__ import annotations

COMPLETE = "complete"
TIME_LIMIT = "time_limit"
PREEMPTED = "preempted"
CANCELLED = "cancelled"
NODE_FAILURE = "node_failure"
GPU_FAULT = "gpu_fault"
NETWORK = "network"
HANG = "hang"
OOM_GPU = "oom_gpu"
OOM_HOST = "oom_host"
DISK_FULL = "disk_full"
CHECKPOINT_BAD = "checkpoint_bad"
NAN = "nan"
RESULT_VALIDATION = "result_validation"
DATA_ERROR = "data_error"
USER_ERROR = "user_error"
UNKNOWN = "unknown"

# Ours: no log and no answer of Slurm shows them.
RESUME_MISMATCH = "resume_mismatch"
NO_PROGRESS = "no_progress"
CRASH_LOOP = "crash_loop"
DEPENDENCY_FAILED = "dependency_failed"
SUPERVISOR_ERROR = "supervisor_error"

OF_THE_NODE = (NODE_FAILURE, GPU_FAULT)  # the node is at fault, whatever ran there

MEANINGS = {
    COMPLETE: "the target step is proven",
    TIME_LIMIT: "the job's time was up",
    PREEMPTED: "Slurm took the nodes away: for another job, or because an operator requeued this one",
    CANCELLED: "a person ended it: seatrial stop or cancel, scancel, Ctrl-C",
    NODE_FAILURE: "a node of the job went down",
    GPU_FAULT: "a GPU, its memory or its NVLink broke",
    NETWORK: "ranks lost each other or waited in vain, and nothing says why",
    HANG: "no step was made for too long, with every rank alive",
    OOM_GPU: "a GPU's memory was not enough",
    OOM_HOST: "a host's memory was not enough",
    DISK_FULL: "a file could not be written: disk full or quota used up",
    CHECKPOINT_BAD: "the checkpoint could not be read",
    NAN: "NaN or Inf in the loss or the gradients",
    RESULT_VALIDATION: "Megatron's rerun of a step gave another result, or asks for one (exit codes 16 and 17)",
    DATA_ERROR: "the data could not be read, or hold what the model cannot take",
    USER_ERROR: "a mistake in the configuration or the installation, before the first step",
    UNKNOWN: "nothing that we know",
    RESUME_MISMATCH: "the first step was not the one after the checkpoint",
    NO_PROGRESS: "too many attempts without a newer checkpoint",
    CRASH_LOOP: "the same step failed the same way again",
    DEPENDENCY_FAILED: "the gate that it waited for did not pass",
    SUPERVISOR_ERROR: "the supervisor itself broke",
}
