/* Functions of the extension, by the file that has them. */
#ifndef LSR_PROD_MODULE_H
#define LSR_PROD_MODULE_H

#include "buffers.h"

/* module_search.c */
PyObject *py_postings(PyObject *self, PyObject *args);
PyObject *py_match(PyObject *self, PyObject *args);
PyObject *py_match_batch(PyObject *self, PyObject *args);
PyObject *py_score(PyObject *self, PyObject *args);
PyObject *py_workspace_bytes(PyObject *self, PyObject *args);

/* module_build.c */
PyObject *py_count_runs(PyObject *self, PyObject *args);
PyObject *py_fill_postings(PyObject *self, PyObject *args);
PyObject *py_measure_compressed(PyObject *self, PyObject *args);
PyObject *py_compress_runs(PyObject *self, PyObject *args);
PyObject *py_bisect_sets(PyObject *self, PyObject *args);

#endif
