/* bin/mcc of a bundle (scripts/bundle): starts the program with the bundle's own loader and C library, wherever it has been
 * unpacked. Linked statically. The program runs itself for work that may crash: MCC_PROGRAM tells it how.
 */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of this file; by the name it was called by where there is no /proc. */
static int own_path(const char* name, char* path, size_t size) {
  const ssize_t length = readlink("/proc/self/exe", path, size - 1);
  if (length > 0) {
    path[length] = 0;
    return 1;
  }
  return strchr(name, '/') != NULL && realpath(name, path) != NULL;
}

int main(int argc, char** argv) {
  char path[4096], copy[4096], loader[4200], libraries[8400], program[4200];
  if (!own_path(argc > 0 ? argv[0] : "", path, sizeof path)) {
    fprintf(stderr, "error: mcc cannot find itself: call it by its path\n");
    return 5;
  }
  strcpy(copy, path);
  const char* root = dirname(dirname(copy));
  const char* more = getenv("LD_LIBRARY_PATH");
  snprintf(loader, sizeof loader, "%s/lib/system/ld-linux-x86-64.so.2", root);
  snprintf(program, sizeof program, "%s/lib/system/mcc", root);
  snprintf(libraries, sizeof libraries, "%s/lib/system:%s/lib%s%s", root, root, more != NULL ? ":" : "", more != NULL ? more : "");
  char** arguments = calloc((size_t)argc + 5, sizeof *arguments);
  if (arguments == NULL || setenv("MCC_PROGRAM", path, 1) != 0) return 5;
  char* first[] = {loader, "--library-path", libraries, program};
  memcpy(arguments, first, sizeof first);
  for (int i = 1; i < argc; ++i) arguments[i + 3] = argv[i];
  execv(loader, arguments);
  perror(loader);
  return 5;
}
