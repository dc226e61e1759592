#!/bin/bash
# Seatrial run qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef: the supervisor is this job's only process.
#SBATCH --job-name=qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef
#SBATCH --comment=qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef
#SBATCH --dependency=singleton
#SBATCH --account=lab
#SBATCH --partition=batch
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=36
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --segment=2
#SBATCH --time=120
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@300
#SBATCH --open-mode=append
#SBATCH --chdir=/lustre/runs/qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef
#SBATCH --output=/lustre/runs/qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef/batch-%j.log
#SBATCH --export=HOME,LANG,LOGNAME,PATH,SHELL,TERM,USER,HF_TOKEN,WANDB_API_KEY

export SUBMITIT_EXECUTOR=slurm
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/lustre/runs/qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef/code:/lustre/runs/qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef/code/host_libraries
# exec: Slurm's signal for the batch process reaches the supervisor, and its exit code is the job's.
exec /usr/bin/python3 -u -m submitit.core._submit /lustre/runs/qwen35_35b_a3b_gb200-gate-20260101-000000-abcdef/submitit
