/* A stand-in for pyxis, NVIDIA's SPANK plugin that starts job steps in containers.
 *
 * It takes pyxis's options, holds them to pyxis's rules, and records them; the tasks run on the host. So it shows that
 * a step was asked for rightly, and nothing about what is in an image or below a mount.
 *
 * plugstack.conf:  required PATH/pyxis.so log=FILE
 *
 * FILE gets one JSON line per step and node: job, step, restart, node, tasks and the options. Each task finds the options
 * in its environment as PYXIS_STAND_IN_CONTAINER_IMAGE and so on. The variables that an image would set are written in
 * PYXIS_STAND_IN_IMAGE_ENV (NAME=VALUE;...): they replace the step's own unless --container-env names them, as in pyxis.
 * An image whose name contains "does-not-exist" cannot be imported.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

#define PREFIX "PYXIS_STAND_IN_"
#define LINE 65536

enum option {
	IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENV, MOUNT_HOME, NO_MOUNT_HOME, REMAP_ROOT, NO_REMAP_ROOT, ENTRYPOINT,
	NO_ENTRYPOINT, ENTRYPOINT_LOG, WRITABLE, READONLY, OPTIONS
};

static const struct { const char *name, *argument; } options[OPTIONS] = {
	[IMAGE] = { "container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH" },
	[MOUNTS] = { "container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]" },
	[WORKDIR] = { "container-workdir", "PATH" },
	[NAME] = { "container-name", "NAME[:FLAGS]" },
	[SAVE] = { "container-save", "PATH" },
	[ENV] = { "container-env", "NAME[,NAME...]" },
	[MOUNT_HOME] = { "container-mount-home", NULL },
	[NO_MOUNT_HOME] = { "no-container-mount-home", NULL },
	[REMAP_ROOT] = { "container-remap-root", NULL },
	[NO_REMAP_ROOT] = { "no-container-remap-root", NULL },
	[ENTRYPOINT] = { "container-entrypoint", NULL },
	[NO_ENTRYPOINT] = { "no-container-entrypoint", NULL },
	[ENTRYPOINT_LOG] = { "container-entrypoint-log", NULL },
	[WRITABLE] = { "container-writable", NULL },
	[READONLY] = { "container-readonly", NULL },
};

static char *values[OPTIONS]; /* NULL: not given */
static const char *log_file;

static int is_absolute(const char *path) { return path[0] == '/'; }

/* Each mount is SRC, SRC:DST or SRC:DST:FLAGS with absolute paths. Returns the offending mount, or NULL. */
static const char *relative_mount(const char *mounts)
{
	static char mount[4096];

	while (*mounts) {
		size_t length = strcspn(mounts, ",");
		snprintf(mount, sizeof mount, "%.*s", (int)length, mounts);
		char *target = strchr(mount, ':');
		if (!is_absolute(mount) || (target && !is_absolute(target + 1)))
			return mount;
		mounts += length + (mounts[length] == ',');
	}
	return NULL;
}

/* A file is named by its path; what does not look like one is a reference to a registry. */
static int is_relative_image(const char *image)
{
	size_t length = strlen(image);

	return image[0] == '.' || (!is_absolute(image) && length > 5 && !strcmp(image + length - 5, ".sqsh"));
}

static int accept_option(int which, const char *argument, int remote)
{
	const char *bad = NULL;

	(void)remote;
	if (options[which].argument && (!argument || !*argument)) {
		slurm_error("pyxis: --%s: argument required", options[which].name);
		return -1;
	}
	if (which == MOUNTS)
		bad = relative_mount(argument);
	else if (which == WORKDIR || which == SAVE)
		bad = is_absolute(argument) ? NULL : argument;
	else if (which == IMAGE)
		bad = is_relative_image(argument) ? argument : NULL;
	if (bad) {
		slurm_error("pyxis: --%s: not an absolute path: %s", options[which].name, bad);
		return -1;
	}
	free(values[which]);
	values[which] = strdup(argument ? argument : "1");
	return values[which] ? 0 : -1;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	for (int i = 0; i < count; i++)
		if (!strncmp(arguments[i], "log=", 4))
			log_file = arguments[i] + 4;
	if (spank_context() == S_CTX_SLURMD)
		return 0;
	for (int i = 0; i < OPTIONS; i++) {
		struct spank_option option = { (char *)options[i].name, (char *)options[i].argument,
					       (char *)"[pyxis stand-in] recorded, not carried out",
					       options[i].argument != NULL, i, accept_option };
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
			slurm_error("pyxis: cannot register --%s", options[i].name);
			return -1;
		}
	}
	return 0;
}

/* Appends printf-like text to a line of LINE bytes; what does not fit is cut. */
#define ADD(...) \
	do { \
		if (used < LINE - 2) \
			used += (size_t)snprintf(line + used, LINE - 2 - used, __VA_ARGS__); \
		if (used > LINE - 3) \
			used = LINE - 3; \
	} while (0)

static size_t add_string(char *line, size_t used, const char *text)
{
	ADD("\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			ADD("\\%c", c);
		else if (c < 0x20)
			ADD("\\u%04x", c);
		else
			ADD("%c", c);
	}
	ADD("\"");
	return used;
}

static int record(spank_t spank)
{
	static char line[LINE];
	size_t used = 0;
	uint32_t job = 0, step = 0, node = 0, tasks = 0;
	char name[256] = "", restart[32] = "";
	int separate = 0, file;

	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_JOB_NODEID, &node);
	spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks);
	snprintf(name, sizeof name, "%s", getenv("SLURMD_NODENAME") ? getenv("SLURMD_NODENAME") : "");
	spank_getenv(spank, "SLURM_RESTART_COUNT", restart, sizeof restart);
	/* The steps that have no number are above 0xfffffff0. */
	ADD("{\"job\":%u,\"step\":", job);
	if (step > 0xfffffff0u)
		ADD("\"%s\"", step == 0xfffffffbu ? "batch" : step == 0xfffffffau ? "interactive" : "other");
	else
		ADD("%u", step);
	ADD(",\"restart\":%d,\"node\":", atoi(restart));
	used = add_string(line, used, name);
	ADD(",\"node_id\":%u,\"tasks\":%u,\"options\":{", node, tasks);
	for (int i = 0; i < OPTIONS; i++) {
		if (!values[i])
			continue;
		ADD("%s\"%s\":", separate++ ? "," : "", options[i].name);
		if (options[i].argument)
			used = add_string(line, used, values[i]);
		else
			ADD("true");
	}
	ADD("}}");
	line[used++] = '\n';
	file = open(log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (file < 0 || write(file, line, used) != (ssize_t)used)
		slurm_error("pyxis: cannot write %s", log_file);
	return file < 0 ? -1 : close(file);
}

/* In slurmstepd as the user, once per step and node: where pyxis imports the image. */
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
	int given = 0;

	(void)count, (void)arguments;
	for (int i = 0; i < OPTIONS; i++)
		given |= values[i] != NULL;
	if (!given || !spank_remote(spank))
		return 0;
	if (!values[IMAGE] && !values[NAME]) {
		slurm_error("pyxis: container options without --container-image or --container-name");
		return -1;
	}
	if (values[IMAGE] && strstr(values[IMAGE], "does-not-exist")) {
		slurm_error("pyxis: failed to import docker image: %s", values[IMAGE]);
		return -1;
	}
	return log_file ? record(spank) : 0;
}

static int names(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (; list && *list; list += strcspn(list, ","), list += *list == ',')
		if (!strncmp(list, name, length) && (list[length] == ',' || !list[length]))
			return 1;
	return 0;
}

/* Before each task's exec: the image's variables, and the options for the task to see. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	char name[128], image[8192], *rest = image, *entry;

	(void)count, (void)arguments;
	if (!values[IMAGE] && !values[NAME])
		return 0;
	if (spank_getenv(spank, PREFIX "IMAGE_ENV", image, sizeof image) == ESPANK_SUCCESS) {
		while ((entry = strsep(&rest, ";"))) {
			char *value = strchr(entry, '=');
			if (!value)
				continue;
			*value++ = '\0';
			if (!names(values[ENV], entry))
				spank_setenv(spank, entry, value, 1);
		}
	}
	for (int i = 0; i < OPTIONS; i++) {
		if (!values[i])
			continue;
		snprintf(name, sizeof name, PREFIX "%s", options[i].name);
		for (char *c = name; *c; c++)
			*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
		spank_setenv(spank, name, values[i], 1);
	}
	/* A folder that only a mount would bring is not there on the host. */
	if (values[WORKDIR] && chdir(values[WORKDIR]))
		slurm_verbose("pyxis: %s is not on this host", values[WORKDIR]);
	return 0;
}
