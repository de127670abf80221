/* Functions of the extension, by the file that has them. */
#ifndef LSR_PROD_MODULE_H
#define LSR_PROD_MODULE_H

#include "buffers.h"

#define SHARD "lsr_prod.search.kernels.Shard" /* a capsule of what begins with a Shard */

/* module_search.c */
PyObject *py_shard(PyObject *self, PyObject *args);
PyObject *py_match(PyObject *self, PyObject *args);
PyObject *py_impacts(PyObject *self, PyObject *args);
PyObject *py_score(PyObject *self, PyObject *args);
PyObject *py_workspace_bytes(PyObject *self, PyObject *args);
PyObject *py_choose_instructions(PyObject *self, PyObject *args);

/* module_version.c */
PyObject *py_version(PyObject *self, PyObject *args);
PyObject *py_read_vector(PyObject *self, PyObject *args);
PyObject *py_search(PyObject *self, PyObject *args);
PyObject *py_search_batch(PyObject *self, PyObject *args);

#endif
